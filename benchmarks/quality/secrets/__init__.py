"""Measure how well secrets are detected, compared with other scanners."""
