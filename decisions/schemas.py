"""Input and output of REST and MCP, which share these schemas."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from decisions.events import Alternative
from decisions.models import DecisionStatus, EdgeRelation, Impact, LinkType
from memories.schemas.validity import ANCHORS, AmendedEntry, AnchorNames, MarkView
from memoryhub.core.schemas import (
    LISTED_AS,
    MAX_AUTHOR,
    MAX_INTEGER,
    Command,
    EntityId,
    FilledLine,
    IdempotencyKey,
    Line,
    Moment,
    Paging,
    at_most,
    only_in_full,
    self_evident,
    unlisted,
)
from memoryhub.core.search import Retrieval
from memoryhub.core.text import NOT_BLANK

MAX_TITLE, MAX_TEXT, MAX_ALTERNATIVES = 200, 50_000, 30
Title = Annotated[FilledLine, StringConstraints(max_length=MAX_TITLE)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Chosen = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT, pattern=NOT_BLANK)]
Name = Annotated[Line, StringConstraints(max_length=200)]
Phase = Annotated[Line, StringConstraints(max_length=64)]
Ids = Annotated[list[EntityId], Field(max_length=100)]
CommitName = Annotated[
    str, StringConstraints(strip_whitespace=True, to_lower=True, pattern=r"^(#\d{1,15}|[0-9a-fA-F]{4,64})$")
]
Note = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000, pattern=NOT_BLANK)]
PullRequest = Annotated[FilledLine, StringConstraints(max_length=2_000)]
FilePath = Annotated[FilledLine, StringConstraints(max_length=1_000)]
CheckLine = Annotated[FilledLine, StringConstraints(max_length=500)]


# Only recording a replacement sets superseded.
SettableStatus = Annotated[
    DecisionStatus,
    WithJsonSchema({"enum": [status.value for status in DecisionStatus if status is not DecisionStatus.SUPERSEDED]}),
]


def _with_reason(value: object) -> object:
    """Accept a plain string, and ``reason`` as a synonym of ``why_not``."""
    if isinstance(value, str):
        return {"option": value}
    if isinstance(value, dict) and "reason" in value and "why_not" not in value:
        return {**{key: part for key, part in value.items() if key != "reason"}, "why_not": value["reason"]}
    return value


def _alternative_forms() -> dict[str, Any]:
    whole = Alternative.model_json_schema()
    option, why_not = (whole["properties"][name] for name in ("option", "why_not"))
    return {"anyOf": [whole, {**whole, "properties": {"option": option, "reason": why_not}}, option]}


AlternativeInput = Annotated[
    Alternative, BeforeValidator(_with_reason), WithJsonSchema({**_alternative_forms(), LISTED_AS: {"type": "object"}})
]
Alternatives = Annotated[list[AlternativeInput], Field(max_length=MAX_ALTERNATIVES)]


class Evidence(Command):
    """Evidence that a decision was implemented, and the code that it is about."""

    commits: list[CommitName] = Field(
        default_factory=list, max_length=100, description="shas or #ids", json_schema_extra=unlisted
    )
    files: list[FilePath] = Field(
        default_factory=list, max_length=200, description="files it governs", json_schema_extra=unlisted
    )
    prs: list[PullRequest] = Field(
        default_factory=list, max_length=50, description="pull requests", json_schema_extra=unlisted
    )
    notes: list[Note] = Field(default_factory=list, max_length=50, json_schema_extra=unlisted)
    validations: list[Note] = Field(
        default_factory=list, max_length=50, description="what confirmed it", json_schema_extra=unlisted
    )
    checks: list[CheckLine] = Field(
        default_factory=list,
        max_length=20,
        description="prove it: `make test` exits 0, or FILE matches REGEX; a person allows commands",
        json_schema_extra=unlisted,
    )
    anchors: AnchorNames | None = Field(None, description=ANCHORS, json_schema_extra=unlisted)


class DecisionFields(Evidence):
    """Fields of a decision."""

    title: Title = Field(description="short", json_schema_extra=self_evident)
    context: Text = Field("", description="problem")
    chosen: Chosen = Field(description="what was chosen", json_schema_extra=self_evident)
    alternatives: Alternatives = Field(default_factory=list, description="[{option, why_not}]")
    rationale: Text = Field("", description="why", json_schema_extra=self_evident)
    impact: Impact = Impact.MEDIUM
    phase: Phase = Field("", description="phase of the work, such as design", json_schema_extra=only_in_full)
    topic: Name = Field("", description="decisions of one topic form a chain", json_schema_extra=unlisted)
    status: SettableStatus = Field(DecisionStatus.ACCEPTED, json_schema_extra=unlisted)
    refines: Ids = Field(default_factory=list, json_schema_extra=unlisted)
    depends_on: Ids = Field(default_factory=list, json_schema_extra=unlisted)
    conflicts_with: Ids = Field(default_factory=list, json_schema_extra=unlisted)
    relates_to: Ids = Field(default_factory=list, json_schema_extra=unlisted)
    branch: bool = Field(
        False, description="supersede one that is already superseded: adds a second head", json_schema_extra=unlisted
    )
    author: Line = Field("", max_length=MAX_AUTHOR, description="default: the client", json_schema_extra=only_in_full)
    source: Line = Field("", max_length=1_000, description="path or URL", json_schema_extra=unlisted)
    decided_at: Moment | None = Field(None, description="default: now", json_schema_extra=unlisted)
    idempotency_key: IdempotencyKey = None


class DecisionRecord(DecisionFields):
    """Record a decision. It is immutable: a change is a new decision that supersedes it."""

    chosen: Chosen = Field("", description="choice; proposed without", json_schema_extra=self_evident)
    supersedes: Ids = Field(default_factory=list, description="ids it replaces", json_schema_extra=self_evident)

    @model_validator(mode="before")
    @classmethod
    def _propose_without_choice(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or "chosen" in fields:
            return fields
        if fields.get("status") in (DecisionStatus.ACCEPTED, DecisionStatus.DEPRECATED):
            raise ValueError(
                f"'chosen' is missing: status {fields['status']} needs a choice; omit the status to propose"
            )
        return {"status": DecisionStatus.PROPOSED, **fields}


class DecisionSupersede(DecisionFields):
    """Record the decision that replaces an earlier one; omitted fields are copied from it."""

    id: EntityId = Field(description="decision to replace")
    title: Title | None = Field(None, description="default: unchanged")  # type: ignore[assignment]
    impact: Impact | None = None  # type: ignore[assignment]


class DecisionLink(Command):
    """Relate a decision to another."""

    id: EntityId = Field(description="id of the decision")
    relation: EdgeRelation
    to: EntityId = Field(description="the other decision")
    branch: bool = Field(
        False, description="supersede one that is already superseded: adds a second head", json_schema_extra=unlisted
    )
    idempotency_key: IdempotencyKey = None


class DecisionUnlink(Command):
    """Remove a wrong edge between two decisions."""

    id: EntityId = Field(description="id of the decision that names the other")
    relation: EdgeRelation
    to: EntityId = Field(description="the other decision")
    reason: str = Field("", max_length=1_000, description="why")
    idempotency_key: IdempotencyKey = None


class DecisionMark(Command):
    """Change a decision's status, or complete its review; its text never changes."""

    id: EntityId = Field(description="id of the decision")
    status: SettableStatus | None = Field(None, description="decision_supersede sets superseded")
    reviewed: bool = Field(False, description="the decision was reviewed again")
    reason: str = Field("", max_length=1_000, description="why")
    idempotency_key: IdempotencyKey = None


class DecisionEvidence(Evidence):
    """Add evidence to a decision; anchors replace those that it has."""

    id: EntityId = Field(description="id of the decision")
    link_type: LinkType = Field(LinkType.IMPLEMENTS, description="what the commits do: implements, reverts or relates")
    idempotency_key: IdempotencyKey = None


class DecisionGet(Retrieval):
    """Get whole decisions with their evidence."""

    ids: Ids = Field(default_factory=list, description="ids", json_schema_extra=self_evident)
    topic: Name = Field("", description="or: the chain of a topic")
    file_path: Line = Field("", max_length=1_000, description="or: those that explain a file or folder")
    lineage: bool = Field(False, description="include what led to each and what followed")
    limit: Annotated[int, at_most(100)] = Field(
        20, ge=1, le=MAX_INTEGER, description="maximum number of results, at most 100"
    )
    max_tokens: int | None = Field(None, ge=50, le=100_000, description="budget of the whole answer")


class DecisionList(Retrieval, Paging):
    """List decisions, the latest first."""

    status: DecisionStatus | None = Field(None, description="only this status")
    impact: Impact | None = Field(None, description="only this impact")
    phase: Phase = Field("", description="only this phase")
    topic: Name = Field("", description="only this topic")
    iteration_id: EntityId | None = Field(None, description="only of this iteration")
    review: bool = Field(False, description="only decisions that need rechecking")


class DecisionView(BaseModel):
    """A decision."""

    id: int
    title: str
    context: str
    chosen: str
    alternatives: list[dict[str, Any]]
    rationale: str
    impact: str
    phase: str
    topic: str
    status: str
    # Why it needs rechecking, or empty.
    review: str
    iteration_id: int | None
    session_id: str
    turn_id: str
    author: str
    source: str
    decided_at: datetime
    # {"relation": …, "to": id, "title": …} for each related decision
    edges: list[dict[str, Any]]
    superseded_by: list[int]
    # If superseded: the current decisions.
    heads: list[int]
    # {"id": …, "sha": …, "message": first line, "date": …, "link_type": …}
    commits: list[dict[str, Any]]
    # {"kind": …, "value": …}
    artifacts: list[dict[str, Any]]
    # The code that it is about, such as ``src/auth.py:10-24``
    anchors: list[str] = Field(default_factory=list)
    # What is known against it, as of a memory
    marks: list[MarkView] = Field(default_factory=list)
    # Since when and why it is in quarantine; lists and searches then leave it out.
    quarantine: str = ""


class DecisionResult(BaseModel):
    """Result of a change of a decision."""

    id: int
    status: str
    title: str
    superseded: list[int] = Field(default_factory=list)
    # For a proposed decision.
    supersedes_once_accepted: list[int] = Field(default_factory=list)
    is_new: bool = True
    # Earlier entries that it seems to amend or contradict
    amendments: list[AmendedEntry] = Field(default_factory=list)
    # Types of the secrets that were replaced before storing.
    redacted: list[str] = Field(default_factory=list)
