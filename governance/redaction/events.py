"""What can happen in redaction."""
