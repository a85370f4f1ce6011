"""What is so, after what happened in redaction."""
