"""What came of a session, a client, a door or a time: quarantined, or undone."""

from __future__ import annotations


def register() -> None:
    """Register events, projectors and effects."""
    from governance import projectors  # noqa: F401
    from governance.rollback import standard_effects  # noqa: F401
