"""The guard of the log: in a project whose policy is strict, no door of a client's writes without an open turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memoryhub.config.project_settings import project_settings
from memoryhub.config.retention_rules import TurnPolicy
from memoryhub.core import log
from memoryhub.core.events.event_types import EventType, TurnRule
from memoryhub.core.origin import Origin
from sessions_app.services.turns import require_open_turn

CLIENT_DOORS = frozenset({"mcp", "rest"})
"""The doors that the policy is for; a person at the admin or the command line keeps no turns."""


@log.guard
def require_turn(event_type: EventType[Any], origin: Origin) -> Origin:
    """Refuse a client's write without a valid token where the policy is strict; name the turn where one is shown.

    Raises:
        PreconditionFailed: there is no token, or it is not that of an open turn.
    """
    if origin.source not in CLIENT_DOORS or event_type.turn is not TurnRule.REQUIRED:
        return origin
    if not origin.ack_token and project_settings().turn_policy is not TurnPolicy.STRICT:
        return origin
    turn = require_open_turn(origin.ack_token)
    return replace(origin, session_id=turn.session_id, turn_id=turn.turn_id)
