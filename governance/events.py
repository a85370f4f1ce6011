"""Events of holds, retention, roll-back and staleness."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue

from governance.models import RollbackAction
from memories.events import ProvenanceRecord, StoreName
from memoryhub.core.events.event_types import GOVERNANCE, Retention, TurnRule, define_event, define_governance_event
from memoryhub.core.events.projection import voiding
from memoryhub.core.events.rollback import sets_aside
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import EntityId, EventRef, Instant, KnownEventRefs, Payload, Sha256, StreamRef, renumbered


class HoldPlaced(Payload):
    stream_id: StreamRef = Field(min_length=1, max_length=200)
    reason: str = Field(min_length=1, max_length=1_000)


class HoldLifted(Payload):
    hold_id: EventRef
    reason: str = Field("", max_length=1_000)


# The list is in the event: a run that is interrupted is finished from this list (decision 26)
class RetentionBegan(Payload):
    # Ages are counted from this time; ISO 8601
    cutoff: Instant
    # SHA-256 of the confirmed list of items
    digest: Sha256
    # The plan: what is deleted by which rule, what is kept and why
    report: dict[str, JsonValue]
    events: int
    bytes: int
    # Single events to erase, as ranges
    positions: list[tuple[int, int]] = Field(default_factory=list)
    # Items to erase with their whole streams, as ranges of ids, by the index of their group in the report
    things: dict[int, list[tuple[int, int]]] = Field(default_factory=dict)


class RetentionRan(Payload):
    run_id: EventRef
    events: int
    bytes: int
    # What was deleted, what was kept and why
    report: dict[str, JsonValue]


HOLD_PLACED = define_governance_event("hold.placed", HoldPlaced, label="Hold placed")
HOLD_LIFTED = define_governance_event("hold.lifted", HoldLifted, label="Hold lifted")
RETENTION_BEGAN = define_governance_event("retention.began", RetentionBegan, label="Retention began", is_local=True)
RETENTION_RAN = define_governance_event("retention.ran", RetentionRan, label="Retention ran", is_local=True)


class RollbackMade(Payload):
    selection: dict[str, Any]
    action: RollbackAction
    steps: list[dict[str, Any]] = Field(default_factory=list)
    left: list[dict[str, Any]] = Field(default_factory=list)
    reason: str = ""


class RollbackUndone(Payload):
    rollback_id: EventRef
    steps: list[dict[str, Any]] = Field(default_factory=list)
    left: list[dict[str, Any]] = Field(default_factory=list)
    reason: str = ""


ROLLBACK_MADE = define_governance_event("rollback.made", RollbackMade, label="Roll-back made", is_local=True)
ROLLBACK_UNDONE = define_governance_event("rollback.undone", RollbackUndone, label="Roll-back undone", is_local=True)


class ThingAffirmed(Payload):
    entity_id: Annotated[EntityId, AfterValidator(renumbered)]
    reason: str = ""
    # Its anchors, as the code is now; with a commit if it counts as learnt there from now on
    provenance: ProvenanceRecord | None = None


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


class LogMerged(Payload):
    """The events of another log were merged; with its bundle, that history can be proven."""

    # The other store
    store: StoreName
    # The number of events of the other log, and the chain digest of the last one
    events: int
    head: Sha256
    # The last event that both logs have, and its chain digest
    fork: int
    fork_digest: Sha256
    # SHA-256 of the bundle before encryption
    sha256: Sha256
    # How many events were added here, before this one
    added: int
    # Memories that both had changed
    conflicts: list[int] = Field(default_factory=list)


LOG_MERGED = define_governance_event("log.merged", LogMerged, label="Log merged", turn=TurnRule.OPTIONAL, is_local=True)


class ImportBegan(Payload):
    # The name of the tool: ``claude-mem``
    tool: str = Field(min_length=1, max_length=64)
    # The file or folder
    place: str = Field("", max_length=1_000)


class ImportEnded(Payload):
    batch: EventRef
    # What became of the records: ``created``, ``revised``, ``unchanged``, …
    counts: dict[str, int] = Field(default_factory=dict)


class ImportUndone(Payload):
    batch: EventRef
    # Events that count no more
    void: KnownEventRefs = Field(default_factory=list)
    kept: KnownEventRefs = Field(default_factory=list)


IMPORT_BEGAN = define_governance_event("import.began", ImportBegan, label="Import began", act=Act.WRITE)
IMPORT_ENDED = define_governance_event("import.ended", ImportEnded, label="Import ended", act=Act.WRITE)
IMPORT_UNDONE = define_governance_event("import.undone", ImportUndone, label="Import undone", removes_text=True)
voiding.append(IMPORT_UNDONE)
