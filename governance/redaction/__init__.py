"""Taking text out of everything that was kept, provably."""

from __future__ import annotations


def register() -> None:
    """Register events and projectors."""
    from governance import projectors  # noqa: F401
