"""What can happen in retention."""
