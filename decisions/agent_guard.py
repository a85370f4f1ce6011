"""Where a project's ``capture_decisions`` is off, agents record no decisions; a person still does.

An agent is who calls over MCP, or over REST with a token of its own. Marking, linking and giving evidence to decisions
that are there goes on.
"""

from __future__ import annotations

from typing import Any

from decisions.events import DECISION_RECORDED
from memoryhub.config.project_settings import project_settings, settings_decided_by
from memoryhub.core import log
from memoryhub.core.errors import Forbidden
from memoryhub.core.events.event_types import EventType
from memoryhub.core.origin import AGENT_PREFIX, Origin

SETTING = "capture_decisions"


@log.guard
def refuse_decisions(event_type: EventType[Any], origin: Origin) -> Origin:
    """Refuse a decision of an agent's where none are captured.

    Raises:
        Forbidden: the sentence names the setting, who decided it, and who may record it all the same.
    """
    if event_type is DECISION_RECORDED and _is_agent(origin) and not project_settings().capture_decisions:
        raise Forbidden(
            f"agents record no decisions here: {SETTING} is false, set by {settings_decided_by()[SETTING]}; tell the "
            "user, who can record it in the admin"
        )
    return origin


def _is_agent(origin: Origin) -> bool:
    return origin.source == "mcp" or (origin.source == "rest" and origin.actor.startswith(AGENT_PREFIX))
