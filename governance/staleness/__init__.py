"""Memories and decisions that need rechecking, and affirmations of them."""

from __future__ import annotations


def register() -> None:
    from governance import projectors  # noqa: F401
    from governance.staleness import selectors  # noqa: F401
