"""Benchmarks of search quality: questions with known answers.

Documents are written as clients write them. The answers are never stored.
"""
