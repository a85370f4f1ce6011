"""Measure how well secrets are found, beside what others find."""
