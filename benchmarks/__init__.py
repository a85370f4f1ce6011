"""Benchmarks for developers: speed and search quality. Not part of the wheel."""
