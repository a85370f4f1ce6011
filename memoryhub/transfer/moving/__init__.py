"""Move stores between databases by their logs (decision 79)."""
