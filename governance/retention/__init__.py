"""Retention: policies, holds, plans and runs."""
