"""Retention, holds, redaction, roll-back and staleness."""
