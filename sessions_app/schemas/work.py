from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, StringConstraints, WithJsonSchema

from memoryhub.config.secret_rules import MAX_ALLOWED, MAX_RULES, Allowed, PersonalType, SecretRule
from memoryhub.core.schemas import (
    LISTED_AS,
    MAX_INTEGER,
    Command,
    EntityId,
    IdempotencyKey,
    Line,
    Moment,
    Paging,
    Tag,
    at_most,
    only_in_full,
    self_evident,
    unlisted,
)
from sessions_app.events import DecisionLink, FileChange
from sessions_app.events.work import Description, Metadata, Slug
from sessions_app.models import IterationStatus


def _as_change(file: object) -> object:
    return {"path": file} if isinstance(file, str) else file


# A path, or an object with the numbers of inserted and deleted lines too.
ChangedFile = Annotated[
    FileChange,
    BeforeValidator(_as_change),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, FileChange.model_json_schema()], LISTED_AS: {"type": "string"}},
    ),
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
        None, max_length=MAX_RULES, description="instead of the project's own rules"
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
