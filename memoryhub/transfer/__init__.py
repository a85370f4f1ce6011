"""Imports from other tools, in batches that can be undone."""
