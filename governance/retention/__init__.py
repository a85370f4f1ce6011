"""How long things are kept: policies, holds, the plan of what would go, and its run."""

from __future__ import annotations


def register() -> None:
    """Register events and projectors."""
    from governance import projectors  # noqa: F401
