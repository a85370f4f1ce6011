"""What can happen in retention."""

from __future__ import annotations

from pydantic import Field, JsonValue

from memoryhub.core.event_types import define_governance_event
from memoryhub.core.schemas import Instant, Payload, Sha256


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
