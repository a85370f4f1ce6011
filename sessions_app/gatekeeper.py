"""Guard of the log: under a strict turn policy, clients write only within an open turn (decision 9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memoryhub.config.project_settings import project_settings
from memoryhub.config.retention_rules import TurnPolicy
from memoryhub.core import log
from memoryhub.core.events.event_types import EventType, TurnRule
from memoryhub.core.origin import Origin
from sessions_app.services.turns import require_open_turn

# The sources that the policy applies to. The admin and the command line keep no turns.
CLIENT_DOORS = frozenset({"mcp", "rest"})


@log.guard
def require_turn(event_type: EventType[Any], origin: Origin) -> Origin:
    """Check the turn of a client's write, and add the turn's ids to the origin."""
    if origin.source not in CLIENT_DOORS or event_type.turn is not TurnRule.REQUIRED:
        return origin
    if not origin.ack_token and project_settings().turn_policy is not TurnPolicy.STRICT:
        return origin
    turn = require_open_turn(origin.ack_token)
    return replace(origin, session_id=turn.session_id, turn_id=turn.turn_id)
