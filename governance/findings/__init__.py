"""Findings: what the events of a project show of its work, each with its evidence."""
