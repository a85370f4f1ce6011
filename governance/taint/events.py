"""What can happen in a roll-back."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from governance.models.taint import RollbackAction
from memoryhub.core.event_types import define_governance_event
from memoryhub.core.schemas import Payload


class RollbackMade(Payload):
    """What came of a selection was set aside or undone; the events behind this one did it, one a step."""

    selection: dict[str, Any]
    action: RollbackAction
    steps: list[dict[str, Any]] = Field(default_factory=list)
    left: list[dict[str, Any]] = Field(default_factory=list)
    reason: str = ""


class RollbackUndone(Payload):
    """A roll-back was undone."""

    rollback_id: int
    steps: list[dict[str, Any]] = Field(default_factory=list)
    left: list[dict[str, Any]] = Field(default_factory=list)
    reason: str = ""


ROLLBACK_MADE = define_governance_event("rollback.made", RollbackMade, label="Roll-back made")
ROLLBACK_UNDONE = define_governance_event("rollback.undone", RollbackUndone, label="Roll-back undone")
