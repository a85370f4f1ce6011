"""What is kept, and what goes: retention, holds, redaction, roll-back, staleness."""
