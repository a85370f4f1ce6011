"""What should be looked at again, and what was affirmed."""

from __future__ import annotations


def register() -> None:
    """Register events and projectors."""
    from governance.staleness import projectors  # noqa: F401
