"""The admin pages of governance."""
