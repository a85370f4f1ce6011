"""The lowest layer: stores, the event log, sanitising and errors (decision 42)."""
