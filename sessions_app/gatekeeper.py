"""Guard of the log: under a strict turn policy, clients write only within an open turn (decision 9)."""

from __future__ import annotations

from typing import Any

from memoryhub.core import log
from memoryhub.core.events.event_types import EventType, TurnRule
from memoryhub.core.origin import Origin
from sessions_app.services.turns import in_turn


@log.guard
def require_turn(event_type: EventType[Any], origin: Origin) -> Origin:
    """Check the turn of a client's write, and add the turn's ids to the origin."""
    return in_turn(origin) if event_type.turn is TurnRule.REQUIRED else origin
