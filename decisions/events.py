from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field

from decisions.models import ArtifactKind, DecisionStatus, EdgeRelation, Impact, LinkType
from memories.events import CopiedFrom, ProvenanceRecord
from memoryhub.core.entities import define_entity
from memoryhub.core.events.event_types import EventGroup, Retention, define_event
from memoryhub.core.events.rollback import reverses, sets_aside, stays
from memoryhub.core.schemas import DerivedName, EventRef, Instant, Payload
from sessions_app.events import EVIDENCE

# Prefix of the idempotency keys of records that were imported from files.
IMPORT_KEY = "import:adr:"


MAX_OPTION, MAX_WHY_NOT = 1_000, 5_000


class Alternative(Payload):
    """An option that was not chosen, and why."""

    option: str = Field(min_length=1, max_length=MAX_OPTION)
    why_not: str = Field("", max_length=MAX_WHY_NOT)


class Edge(Payload):
    relation: EdgeRelation
    to: EventRef


class Artifact(Payload):
    """Evidence other than a recorded commit."""

    kind: ArtifactKind
    value: str = Field(min_length=1, max_length=2_000)


class CommitEvidence(Payload):
    commit_id: EventRef
    link_type: LinkType = LinkType.IMPLEMENTS


class DecisionRecorded(Payload):
    title: str = Field(min_length=1, max_length=300)
    context: str = ""
    # Empty for a proposal that names no choice yet.
    chosen: str = ""
    alternatives: list[Alternative] = Field(default_factory=list)
    rationale: str = ""
    impact: Impact = Impact.MEDIUM
    phase: str = ""
    topic: DerivedName = ""
    status: DecisionStatus = DecisionStatus.ACCEPTED
    author: str = ""
    source: DerivedName = ""
    # ISO 8601 if it was decided before it was recorded, else the time of the event.
    decided_at: Instant | Literal[""] = ""
    edges: list[Edge] = Field(default_factory=list)
    artifacts: list[Artifact] = Field(default_factory=list)
    commits: list[CommitEvidence] = Field(default_factory=list)
    provenance: ProvenanceRecord | None = None
    # What the choice was copied from
    copied_from: CopiedFrom | None = None


class DecisionLinked(Payload):
    decision_id: EventRef
    edge: Edge


class DecisionUnlinked(Payload):
    """An edge that was wrong was removed, whichever event made it."""

    decision_id: EventRef
    edge: Edge
    reason: str = ""


class DecisionMarked(Payload):
    """A new status or review note of a decision; its text never changes."""

    decision_id: EventRef
    status: DecisionStatus | None = None
    # Why the decision needs review; empty once reviewed.
    review: str | None = None
    reason: str = ""


class DecisionEvidenced(Payload):
    decision_id: EventRef
    artifacts: list[Artifact] = Field(default_factory=list)
    commits: list[CommitEvidence] = Field(default_factory=list)


DECISIONS = EventGroup("decisions", "Decisions", 60, "decision")

_RECORDED = sets_aside("decisions", "Decisions recorded", order=80, thing="decision", is_cited=True)

_define = partial(define_event, group=DECISIONS, retention=Retention.WITH_STREAM)

DECISION_RECORDED = _define(
    "decision.recorded",
    DecisionRecorded,
    label="Decision recorded",
    rollback=_RECORDED,
    changes_stream=True,
    nouns=("decision", "decisions"),
    is_tallied=True,
)
DECISION_LINKED = _define(
    "decision.linked",
    DecisionLinked,
    label="Decision linked",
    rollback=sets_aside("edges", "Edges between decisions", order=100),
    changes_stream=False,
)
DECISION_UNLINKED = _define(
    "decision.unlinked",
    DecisionUnlinked,
    label="Decision unlinked",
    rollback=stays("a removed edge can be added again"),
    changes_stream=False,
)
DECISION_MARKED = _define(
    "decision.marked",
    DecisionMarked,
    label="Decision marked",
    rollback=reverses("marks", "Decisions marked", order=90, by="mark", thing="decision"),
    changes_stream=True,
)
DECISION_EVIDENCED = _define(
    "decision.evidenced", DecisionEvidenced, label="Decision evidenced", rollback=EVIDENCE, changes_stream=False
)


define_entity(
    "decision", "SELECT id, title, '' AS kind, false AS deleted FROM decisions_decision", shown_by="decision_get"
)
