"""Roll back what a session, a client or a period of time did: quarantine it, or undo it."""

from __future__ import annotations


def register() -> None:
    """Register events, projectors and effects."""
    from governance import projectors  # noqa: F401
    from memoryhub.core.events.rollback import define_effects_in

    define_effects_in("governance.rollback.standard_effects")
