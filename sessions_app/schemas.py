"""What callers send and get: the same at REST and MCP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, WithJsonSchema, model_validator

from memoryhub.core.schemas import Command, EntityId, IdempotencyKey, Identifier, Moment, Paging, self_evident, unlisted
from sessions_app.events import DecisionLink, FileChange
from sessions_app.events.profile import Description, Metadata, Name, RootPath, Slug, Tags
from sessions_app.models import IterationStatus, SessionMode, SessionStatus, TurnStatus

_MODES = {"working_period": SessionMode.WORKING.value, "scratch_space": SessionMode.SCRATCH.value}


class SessionStart(Command):
    """Begin a session."""

    purpose: str = Field("", max_length=2_000, description="what the session is for")
    mode: Annotated[SessionMode, BeforeValidator(lambda mode: _MODES.get(str(mode), mode))] = Field(
        SessionMode.WORKING, description="working, or scratch for a throw-away space"
    )
    directory: str = Field("", max_length=1_000, description="where the work happens")
    agent: str = Field("", max_length=200, description="who works; default: the client's name")
    session_id: Identifier | None = Field(None, description="default: a new one")
    name: str = Field("", max_length=200, description="a label, before the purpose", json_schema_extra=unlisted)
    metadata: dict[str, JsonValue] | None = Field(None, description="its mode alone", json_schema_extra=unlisted)
    idempotency_key: IdempotencyKey = None

    @model_validator(mode="before")
    @classmethod
    def _as_ours(cls, given: Any) -> Any:
        """Read a label as part of the purpose, and the mode where it comes as metadata."""
        if not isinstance(given, dict) or not (given.get("name") or given.get("metadata")):
            return given
        rest = {name: value for name, value in given.items() if name not in ("name", "metadata")}
        metadata = given.get("metadata") or {}
        if set(metadata) - {"mode"}:
            raise ValueError("metadata takes mode alone; keep what else there is with memory_write, scope=session")
        said = [str(given[name]) for name in ("name", "purpose") if given.get(name)]
        return {**metadata, **rest, "purpose": ": ".join(said)}


class SessionEnd(Command):
    """End a session."""

    summary: str = Field(
        "", max_length=20_000, description="what was done, learnt and left open", json_schema_extra=self_evident
    )
    session_id: Identifier | None = Field(
        None,
        description="default: this connection's session, else the only active one",
        json_schema_extra=self_evident,
    )
    discard: bool = Field(False, description="a scratch session's entries go; without it they are promoted")
    status: Literal["completed", "discarded"] | None = Field(
        None, description="discarded is discard=true", json_schema_extra=unlisted
    )
    keep: list[EntityId] = Field(
        default_factory=list, max_length=1_000, description="with discard: promote these all the same"
    )
    idempotency_key: IdempotencyKey = None

    @model_validator(mode="before")
    @classmethod
    def _as_ours(cls, given: Any) -> Any:
        """Read the status to end with as whether to discard."""
        if isinstance(given, dict) and given.get("status") == "discarded":
            return {**given, "discard": True}
        return given


class SessionList(Paging):
    """List sessions, newest first."""

    status: SessionStatus | None = Field(None, description="only these")


class SessionTouch(Command):
    """Pause or resume a session."""

    session_id: Identifier | None = Field(None, description="default: this connection's session")


class TurnBegin(Command):
    """Begin a turn; the answer has the ack_token that its events and its end must show."""

    session_id: Identifier | None = Field(None, description="default: this connection's session")
    turn_id: Identifier | None = Field(None, description="default: a new one")


class TurnCall(Command):
    """A call that must show the token of an open turn."""

    ack_token: str | None = Field(None, max_length=200, description="what turn_begin returned")
    session_id: Identifier | None = Field(None, description="checked against the token's, where given")
    turn_id: Identifier | None = Field(None, description="checked against the token's, where given")


class EventAppend(TurnCall):
    """Append an event to the open turn."""

    type: str = Field(max_length=64, description="such as message.user, command.run, phase_completed")
    payload: dict[str, Any] = Field(description="what happened; an error names the fields of the type")
    idempotency_key: IdempotencyKey = None


class TurnEnd(TurnCall):
    """End the open turn."""

    summary: str = Field("", max_length=20_000, description="what came of it")


class TurnList(Paging):
    """List turns, newest first."""

    session_id: Identifier | None = Field(None, description="only of this session")
    status: TurnStatus | None = Field(None, description="only these")


class IterationList(Paging):
    """List iterations, newest first."""

    status: IterationStatus | None = Field(None, description="only these")


class TurnView(BaseModel):
    """A turn as every door shows it."""

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


class IterationStart(Command):
    """Begin an iteration; at most one is active."""

    command: str = Field(min_length=1, max_length=64, description="feature, fix, audit, ship, spike …")
    description: str = Field("", max_length=5_000, description="what it is for")


class IterationAdvance(Command):
    """Complete a phase, begin the next, note what was made."""

    id: EntityId | None = Field(None, description="default: the active one")
    completed: str = Field("", max_length=64, description="the phase that is done; default: the present one")
    phase: str = Field("", max_length=64, description="the phase that begins")
    artifacts: list[str] = Field(default_factory=list, max_length=100, description="paths or links of what was made")


class IterationComplete(Command):
    """Complete or abandon an iteration."""

    id: EntityId | None = Field(None, description="default: the active one")
    outcome: str = Field("", max_length=20_000, description="what came of it")
    abandon: bool = Field(False, description="it was given up")


class IterationGet(Command):
    """Get an iteration with its chronology."""

    id: EntityId | None = Field(None, description="default: the latest")
    events: int = Field(50, ge=0, le=500, description="so many of its events, the newest")


class IterationView(BaseModel):
    """An iteration as every door shows it."""

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


def _as_change(file: object) -> object:
    return {"path": file} if isinstance(file, str) else file


ChangedFile = Annotated[FileChange, BeforeValidator(_as_change), WithJsonSchema({"type": "string"})]
"""A path, or an object with the lines that were inserted and deleted too."""


class CommitRead(Command):
    """Record a commit: from git, or from the fields given where there is no repository.

    One that is known already is linked with the decisions and the iteration that are named.
    """

    sha: str = Field(pattern=r"^[0-9a-fA-F]{4,64}$", description="full or short")
    message: str | None = Field(None, max_length=100_000, description="default: from git")
    author: str | None = Field(None, max_length=300, description="default: from git")
    committed_at: Moment | None = Field(None, description="default: from git; without a repository, now")
    files: list[ChangedFile] = Field(
        default_factory=list, max_length=10_000, description="paths it touched; default: from git"
    )
    directory: str | None = Field(
        None, max_length=1_000, description="of the repository; default: where the client works"
    )
    decision_ids: list[EntityId] = Field(default_factory=list, max_length=100, description="decisions it implements")
    link_type: DecisionLink = Field(
        "implements", description="what it does to them: implements, reverts, relates", json_schema_extra=unlisted
    )
    iteration_id: EntityId | None = Field(None, description="default: the active one")


class SettingsChange(Command):
    """Change settings of the project; null takes one back to its default."""

    settings: dict[str, JsonValue] = Field(min_length=1, max_length=50)


class OrgDescribe(Command):
    """Describe an organisation; what is left out stays as it is."""

    name: Name = Field("", description="for people")
    description: Description = Field("", description="what it is")
    metadata: Metadata = Field(default_factory=dict, description="a JSON object; replaces the one before")
    tags: Tags = Field(default_factory=list, description="replace those before", json_schema_extra=unlisted)
    idempotency_key: IdempotencyKey = None


class ProjectDescribe(OrgDescribe):
    """Describe a project; what is left out stays as it is."""

    description: Description = Field("", description="what it is for")
    metadata: Metadata = Field(default_factory=dict, description="goals, constraints, state; replaces the one before")
    org_id: Slug | None = Field(None, description="the organisation it belongs to; null for none")
    root_path: RootPath = Field("", description="its folder")


class ProfileView(BaseModel):
    """What a store says of itself; of one that was never described, all is empty."""

    name: str = ""
    description: str = ""
    root_path: str = ""
    org: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    updated_at: datetime | None = None


class SessionView(BaseModel):
    """A session as every door shows it."""

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


class CommitRecord(Command):
    """A commit as git tells it."""

    sha: str = Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$", description="the full hash")
    message: str = Field("", max_length=100_000)
    author: str = Field("", max_length=300)
    committed_at: datetime
    files: list[FileChange] = Field(default_factory=list, max_length=100_000)


class CommitView(BaseModel):
    """A commit as every door shows it."""

    id: int
    sha: str
    message: str
    author: str
    committed_at: datetime
    insertions: int
    deletions: int
    iteration_id: int | None
    files: list[dict[str, Any]]
    decisions: list[dict[str, Any]] = Field(default_factory=list)
    """``{"id": …, "title": …, "link_type": …}`` of the decisions that it is evidence of."""
