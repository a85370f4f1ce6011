"""Roll back what a session, client or period of time did: quarantine it, or undo it."""

from __future__ import annotations


def register() -> None:
    from governance import projectors  # noqa: F401
    from memoryhub.core.events.rollback import define_effects_in

    define_effects_in("governance.rollback.standard_effects")
