"""Check a hub: each finding is a problem and its repair."""
