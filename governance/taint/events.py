"""What can happen in taint."""
