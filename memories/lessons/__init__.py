"""Lessons: memories that rules propose from the events of a session, without a model."""
