"""What should be looked at again, and what was affirmed."""

from __future__ import annotations


def register() -> None:
    """Register events and projectors, and what a context pack says of it."""
    from governance import projectors  # noqa: F401
    from governance.staleness import selectors  # noqa: F401
