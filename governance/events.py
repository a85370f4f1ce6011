"""What can happen in staleness."""

from __future__ import annotations

from typing import Any

from pydantic import Field, JsonValue

from governance.models import RollbackAction
from memoryhub.core.events.event_types import GOVERNANCE, Retention, define_event, define_governance_event
from memoryhub.core.events.rollback import sets_aside
from memoryhub.core.schemas import EntityId, Instant, Payload, Sha256


class HoldPlaced(Payload):
    """Something is to be kept until further notice, whatever its age."""

    stream_id: str = Field(min_length=1, max_length=200)
    reason: str = Field(min_length=1, max_length=1_000)


class HoldLifted(Payload):
    """It need not be kept any longer."""

    hold_id: int
    reason: str = Field("", max_length=1_000)


class RetentionBegan(Payload):
    """A run of retention set out to take exactly these; whatever came to be kept meanwhile it leaves."""

    cutoff: Instant
    """From when ages count; ISO 8601."""
    digest: Sha256
    """Of what was to go, as it was confirmed."""
    report: dict[str, JsonValue]
    """The plan: what was to go by rule, and what was kept by what."""
    events: int
    bytes: int
    positions: list[tuple[int, int]] = Field(default_factory=list)
    """The single events that were to go, as ranges."""
    things: dict[int, list[tuple[int, int]]] = Field(default_factory=dict)
    """The things that were to go with their streams, as ranges of ids, by the place of their group in the report."""


class RetentionRan(Payload):
    """The run is at its end, and the free space was wiped."""

    run_id: int
    events: int
    bytes: int
    report: dict[str, JsonValue]
    """What went, and what was kept by what."""


HOLD_PLACED = define_governance_event("hold.placed", HoldPlaced, label="Hold placed")
HOLD_LIFTED = define_governance_event("hold.lifted", HoldLifted, label="Hold lifted")
RETENTION_BEGAN = define_governance_event("retention.began", RetentionBegan, label="Retention began")
RETENTION_RAN = define_governance_event("retention.ran", RetentionRan, label="Retention ran")


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


class ThingAffirmed(Payload):
    """Someone looked at a memory or a decision again and found that it holds."""

    entity_id: EntityId
    reason: str = ""


THING_AFFIRMED = define_event(
    "thing.affirmed",
    ThingAffirmed,
    label="Thing affirmed",
    group=GOVERNANCE,
    retention=Retention.WITH_STREAM,
    rollback=sets_aside("affirmations", "Memories and decisions affirmed", order=210),
    changes_stream=False,
    alone=True,
)
