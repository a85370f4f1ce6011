"""Input and output of REST and MCP, which share these schemas."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from memoryhub.config.project_settings import MAX_ALLOWED, MAX_SECRET_RULES, Allowed, PersonalType, SecretRule
from memoryhub.core.schemas import (
    LISTED_AS,
    LOWERED,
    MAX_INTEGER,
    Command,
    EntityId,
    IdempotencyKey,
    Identifier,
    Line,
    Moment,
    Paging,
    Tag,
    at_most,
    only_in_full,
    self_evident,
    unlisted,
)
from sessions_app.events import DecisionLink, Description, FileChange, Metadata, Slug
from sessions_app.events.client import outlines
from sessions_app.models import IterationStatus, SessionMode, SessionStatus, TurnStatus

_MODES = {"working_period": SessionMode.WORKING.value, "scratch_space": SessionMode.SCRATCH.value}
Mode = Annotated[SessionMode, BeforeValidator(lambda mode: _MODES.get(str(mode), mode))]
MAX_NAME = 200
MAX_METADATA = 20_000


class SessionMetadata(BaseModel):
    """A client's own data of a session. ``mode`` and ``auto_promote`` have an effect."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    mode: Annotated[Mode | None, WithJsonSchema({"enum": [*_MODES, *SessionMode.values, None]})] = None
    auto_promote: bool = Field(False, description="session_end promotes a scratch session's entries without asking")

    @model_validator(mode="after")
    def _bounded(self) -> SessionMetadata:
        if len(self.model_dump_json()) > MAX_METADATA:
            raise ValueError(f"metadata may have at most {MAX_METADATA} characters as JSON")
        return self


class SessionStart(Command):
    """Begin a session."""

    purpose: Line = Field("", max_length=2_000, description="goal of the session", json_schema_extra=self_evident)
    mode: Mode = Field(SessionMode.WORKING, description="scratch: entries are temporary")
    directory: Line = Field("", max_length=1_000, description="working directory")
    agent: Line = Field("", max_length=200, description="default: the client's name")
    session_id: Identifier | None = Field(None, description="default: a new one")
    name: Line = Field(
        "", max_length=MAX_NAME, description="a label, before the purpose", json_schema_extra=only_in_full
    )
    metadata: SessionMetadata | None = Field(
        None, description="your own data; mode and auto_promote have an effect", json_schema_extra=only_in_full
    )
    idempotency_key: IdempotencyKey = None

    @model_validator(mode="before")
    @classmethod
    def _normalize(cls, data: Any) -> Any:
        # A name becomes part of the purpose; metadata may hold the mode.
        if not isinstance(data, dict):
            return data
        metadata = data.get("metadata")
        if isinstance(metadata, dict) and metadata.get("mode"):
            data = {"mode": metadata["mode"], **data}
        if not data.get("name"):
            return data
        fields = {name: value for name, value in data.items() if name != "name"}
        texts = [data[name] for name in ("name", "purpose") if data.get(name)]
        if not all(isinstance(text, str) for text in texts):
            return data
        if len((data.get("name") or "").strip()) > MAX_NAME:
            return data  # refused by the field's max_length
        return {**fields, "purpose": ": ".join(texts)}


class SessionEnd(Command):
    """End a session."""

    summary: str = Field(
        "", max_length=20_000, description="what was done, learnt and left open", json_schema_extra=self_evident
    )
    session_id: Identifier | None = Field(
        None, description="default: this connection's session, else the only active one", json_schema_extra=only_in_full
    )
    discard: bool = Field(False, description="delete a scratch session's entries")
    promote: bool = Field(
        False, description="move a scratch session's entries to the project", json_schema_extra=only_in_full
    )
    status: Literal["completed", "discarded"] | None = Field(
        None, description="discarded is discard=true; completed leaves the choice open", json_schema_extra=only_in_full
    )
    keep: list[EntityId] = Field(default_factory=list, max_length=1_000, description="ids to promote")
    idempotency_key: IdempotencyKey = None

    @model_validator(mode="before")
    @classmethod
    def _normalize(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("status") == "discarded":
            return {"discard": True, **data}
        return data


class SessionList(Paging):
    """List sessions, newest first."""

    status: SessionStatus | None = Field(None, description="only these", json_schema_extra=self_evident)


class SessionTouch(Command):
    """Pause or resume a session."""

    session_id: Identifier | None = Field(None, description="default: this connection's")


class SessionView(BaseModel):
    """A session."""

    id: int
    session_id: str
    purpose: str
    mode: SessionMode
    status: SessionStatus
    directory: str
    agent: str
    started_at: datetime
    ended_at: datetime | None
    summary: str
    metadata: dict[str, Any]


class TurnBegin(Command):
    """Begin a turn; its events and its end must send the returned ack_token."""

    session_id: Identifier | None = Field(None, description="default: this connection's; a new id begins a session")
    turn_id: Identifier | None = Field(None, description="default: a new one")


class TurnCall(Command):
    """A call that must send the token of an open turn."""

    ack_token: str | None = Field(None, max_length=200, description="from turn_begin")
    session_id: Identifier | None = Field(
        None, description="must match the token's, if given", json_schema_extra=unlisted
    )
    turn_id: Identifier | None = Field(None, description="must match the token's, if given", json_schema_extra=unlisted)


def _parsed_object(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError("it must be an object, or an object as JSON text") from error


# An object; its text as JSON is accepted too
EventData = Annotated[dict[str, Any], BeforeValidator(_parsed_object)]


# No colon or space: the hub's own traces, such as those of imports, have one. Masked secrets don't match either.
TraceId = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"), LOWERED
]


def _fields_of_payloads() -> str:
    lines = [f"{', '.join(types)}: {fields}" for fields, types in outlines().items()]
    return f"{'; '.join(lines)}. Other fields are stored too"


class EventAppend(TurnCall):
    """Append an event to the open turn."""

    type: Line = Field(max_length=64, description="e.g. message.user, phase_completed, or a word of your own")
    payload: EventData = Field(description=_fields_of_payloads())
    phase: Line = Field("", max_length=64, description="goes into the payload", json_schema_extra=only_in_full)
    trace_id: TraceId | None = Field(None, description="groups events across systems", json_schema_extra=self_evident)
    idempotency_key: IdempotencyKey = None


class TurnEnd(TurnCall):
    """End the open turn."""

    summary: str = Field("", max_length=20_000, description="result of the turn", json_schema_extra=self_evident)


class TurnList(Paging):
    """List turns, newest first."""

    session_id: Identifier | None = Field(None, description="only of this session")
    status: TurnStatus | None = Field(None, description="only these", json_schema_extra=self_evident)


class TurnView(BaseModel):
    """A turn."""

    id: int
    session_id: str
    turn_id: str
    status: TurnStatus
    automatic: bool
    actor: str
    began_at: datetime
    ended_at: datetime | None
    expires_at: datetime
    event_count: int
    summary: str


# A path, or an object with the numbers of inserted and deleted lines too.
ChangedFile = Annotated[
    FileChange,
    BeforeValidator(lambda file: {"path": file} if isinstance(file, str) else file),
    WithJsonSchema({"anyOf": [{"type": "string"}, FileChange.model_json_schema()], LISTED_AS: {"type": "string"}}),
]


class CommitRead(Command):
    """Record a commit from git, or from the given fields where there is no repository.

    A commit that is already recorded is linked with the given decisions and iteration.
    """

    sha: str = Field(pattern=r"^[0-9a-fA-F]{4,64}$", description="full or short", json_schema_extra=self_evident)
    message: str | None = Field(
        None, max_length=100_000, description="default: from git", json_schema_extra=self_evident
    )
    author: Line | None = Field(None, max_length=300, description="default: from git", json_schema_extra=self_evident)
    committed_at: Moment | None = Field(None, description="default: from git, or now", json_schema_extra=self_evident)
    files: list[ChangedFile] = Field(
        default_factory=list,
        max_length=10_000,
        description="changed paths; default: from git",
        json_schema_extra=self_evident,
    )
    directory: Line | None = Field(None, max_length=1_000, description="of the repository")
    decision_ids: list[EntityId] = Field(
        default_factory=list, max_length=100, description="decisions it implements", json_schema_extra=self_evident
    )
    link_type: DecisionLink = Field(
        "implements", description="implements, reverts or relates", json_schema_extra=only_in_full
    )
    iteration_id: EntityId | None = Field(None, description="default: the active one")


class CommitRecord(Command):
    """A commit as read from git."""

    sha: str = Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$", description="the full hash")
    message: str = Field("", max_length=100_000)
    author: Line = Field("", max_length=300)
    committed_at: Moment
    files: list[FileChange] = Field(default_factory=list, max_length=100_000)


class HookDelivery(Command):
    """A hook event of a client on another machine."""

    data: dict[str, JsonValue] = Field(description="what the client passed to its hook, without secrets")
    happened_at: Moment | None = Field(None, description="default: now; never before the last event")
    commits: list[CommitRecord] = Field(
        default_factory=list, max_length=100, description="made by the event's command, as git on that machine has them"
    )
    idempotency_key: IdempotencyKey = None


class HookContext(BaseModel):
    """The context that a hook adds to its client's model."""

    context: str = ""
    is_pack: bool = Field(False, description="the context is that of a session's start, which the sender may keep")


class CommitView(BaseModel):
    """A commit."""

    id: int
    sha: str
    message: str
    author: str
    committed_at: datetime
    insertions: int
    deletions: int
    iteration_id: int | None
    files: list[dict[str, Any]]
    # Linked decisions: {"id": …, "title": …, "link_type": …}
    decisions: list[dict[str, Any]] = Field(default_factory=list)


class IterationList(Paging):
    """List iterations, newest first."""

    status: IterationStatus | None = Field(None, description="only these", json_schema_extra=self_evident)


class IterationStart(Command):
    """Begin an iteration; at most one is active."""

    command: Line = Field(min_length=1, max_length=64, description="feature, fix, audit, ship, spike …")
    description: str = Field("", max_length=5_000, description="goal", json_schema_extra=self_evident)


class IterationAdvance(Command):
    """Complete a phase, begin the next, and record artifacts."""

    id: EntityId | None = Field(None, description="default: the active one")
    completed: Line = Field("", max_length=64, description="finished phase; default: the current one")
    phase: Line = Field("", max_length=64, description="next phase")
    artifacts: list[Line] = Field(default_factory=list, max_length=100, description="paths or URLs")
    idempotency_key: IdempotencyKey = None


class IterationComplete(Command):
    """Complete or abandon an iteration."""

    id: EntityId | None = Field(None, description="default: the active one")
    outcome: str = Field("", max_length=20_000, description="result", json_schema_extra=self_evident)
    abandon: bool = Field(False, description="mark it abandoned", json_schema_extra=self_evident)


class IterationGet(Command):
    """Get an iteration with its chronology."""

    id: EntityId | None = Field(None, description="default: the latest")
    events: Annotated[int, at_most(500)] = Field(
        50, ge=0, le=MAX_INTEGER, description="number of newest events, at most 500"
    )


class IterationView(BaseModel):
    """An iteration."""

    id: int
    command: str
    description: str
    status: IterationStatus
    phase: str
    phases_completed: list[str]
    artifacts: list[str]
    session_id: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str


Name = Annotated[Line, StringConstraints(max_length=200)]
RootPath = Annotated[Line, StringConstraints(max_length=1_000)]
Tags = Annotated[list[Tag], Field(max_length=50)]


class SettingsChange(Command):
    """Change settings of the project; null resets one to its default."""

    settings: dict[str, JsonValue] = Field(min_length=1, max_length=50)


class OrgDescribe(Command):
    """Describe an organisation; omitted fields stay unchanged."""

    name: Name = Field("", description="display name", json_schema_extra=self_evident)
    description: Description = Field("", description="what it is", json_schema_extra=self_evident)
    metadata: Metadata = Field(default_factory=dict, description="JSON object; replaces the previous one")
    tags: Tags = Field(default_factory=list, description="replaces all", json_schema_extra=unlisted)
    idempotency_key: IdempotencyKey = None


class ProjectDescribe(OrgDescribe):
    """Describe a project; omitted fields stay unchanged."""

    description: Description = Field("", description="purpose", json_schema_extra=self_evident)
    metadata: Metadata = Field(default_factory=dict, description="goals, constraints, state; replaces the previous")
    org_id: Slug | None = Field(None, description="organisation, or null")
    root_path: RootPath = Field("", description="folder", json_schema_extra=self_evident)


class ProfileView(BaseModel):
    """Description of a store; empty where it was never described."""

    name: str = ""
    description: str = ""
    root_path: str = ""
    org: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    updated_at: datetime | None = None


MAX_TEXT = 500_000


class Sanitise(Command):
    """Preview what would be removed from a text before it is stored; nothing is written."""

    text: str = Field(max_length=MAX_TEXT, description="text to check")
    secret_rules: list[SecretRule] | None = Field(
        None, max_length=MAX_SECRET_RULES, description="instead of the project's own rules"
    )
    secret_allow: list[Allowed] | None = Field(
        None, max_length=MAX_ALLOWED, description="instead of the project's allow-list"
    )
    mask_personal: list[PersonalType] | None = Field(
        None, max_length=5, description="instead of the project's types of personal data"
    )


class FoundSecret(BaseModel):
    """A secret that would be removed: its rule and its position in the text, never its value."""

    type: str
    rule: str
    description: str
    origins: list[str] = Field(description="sources of the rule, with licence")
    start: int = Field(description="offset in characters")
    end: int


class Sanitised(BaseModel):
    """A text as it would be stored."""

    text: str
    found: list[FoundSecret]
