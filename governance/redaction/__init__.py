"""Remove text from the log and from every copy of it."""
