"""Guard of the log: where ``capture_decisions`` is off, agents record no decisions; people still do.

Agents call over MCP, or over REST with an agent's token. They may still mark, link and add evidence.
"""

from __future__ import annotations

from typing import Any

from decisions.events import DECISION_RECORDED
from memoryhub.config.current_settings import project_settings, settings_decided_by
from memoryhub.core import log
from memoryhub.core.errors import Forbidden
from memoryhub.core.events.event_types import EventType
from memoryhub.core.origin import AGENT_PREFIX, Origin

SETTING = "capture_decisions"


@log.guard
def refuse_decisions(event_type: EventType[Any], origin: Origin) -> Origin:
    """Refuse a new decision of an agent if the setting is off."""
    if event_type is DECISION_RECORDED and _is_agent(origin) and not project_settings().capture_decisions:
        raise Forbidden(
            f"agents cannot record decisions here: {SETTING} is false, set by {settings_decided_by()[SETTING]}; ask "
            "the user to record it in the admin"
        )
    return origin


def _is_agent(origin: Origin) -> bool:
    return origin.source == "mcp" or (origin.source == "rest" and origin.actor.startswith(AGENT_PREFIX))
