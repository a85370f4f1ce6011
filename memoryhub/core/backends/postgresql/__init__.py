"""Stores as schemas of a PostgreSQL database, and Django's backend for them (decision 77)."""
