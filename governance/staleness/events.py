"""What can happen in staleness."""
