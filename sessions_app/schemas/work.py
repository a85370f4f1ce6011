"""Trying out what would be taken out of a text: what callers send and get."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, StringConstraints, WithJsonSchema

from memoryhub.config.secret_rules import MAX_ALLOWED, MAX_RULES, Allowed, SecretRule
from memoryhub.core.schemas import LISTED_AS, Command, EntityId, IdempotencyKey, Line, Moment, Paging, Tag, unlisted
from sessions_app.events import DecisionLink, FileChange
from sessions_app.events.work import Description, Metadata, Slug
from sessions_app.models import IterationStatus


def _as_change(file: object) -> object:
    return {"path": file} if isinstance(file, str) else file


ChangedFile = Annotated[
    FileChange,
    BeforeValidator(_as_change),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, FileChange.model_json_schema()], LISTED_AS: {"type": "string"}},
    ),
]
"""A path, or an object with the lines that were inserted and deleted too."""


class CommitRead(Command):
    """Record a commit: from git, or from the fields given where there is no repository.

    One that is known already is linked with the decisions and the iteration that are named.
    """

    sha: str = Field(pattern=r"^[0-9a-fA-F]{4,64}$", description="full or short")
    message: str | None = Field(None, max_length=100_000, description="default: from git")
    author: Line | None = Field(None, max_length=300, description="default: from git")
    committed_at: Moment | None = Field(None, description="default: from git; without a repository, now")
    files: list[ChangedFile] = Field(
        default_factory=list, max_length=10_000, description="paths it touched; default: from git"
    )
    directory: Line | None = Field(
        None, max_length=1_000, description="of the repository; default: where the client works"
    )
    decision_ids: list[EntityId] = Field(default_factory=list, max_length=100, description="decisions it implements")
    link_type: DecisionLink = Field(
        "implements", description="what it does to them: implements, reverts, relates", json_schema_extra=unlisted
    )
    iteration_id: EntityId | None = Field(None, description="default: the active one")


class CommitRecord(Command):
    """A commit as git tells it."""

    sha: str = Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$", description="the full hash")
    message: str = Field("", max_length=100_000)
    author: Line = Field("", max_length=300)
    committed_at: Moment
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


class IterationList(Paging):
    """List iterations, newest first."""

    status: IterationStatus | None = Field(None, description="only these")


class IterationStart(Command):
    """Begin an iteration; at most one is active."""

    command: Line = Field(min_length=1, max_length=64, description="feature, fix, audit, ship, spike …")
    description: str = Field("", max_length=5_000, description="what it is for")


class IterationAdvance(Command):
    """Complete a phase, begin the next, note what was made."""

    id: EntityId | None = Field(None, description="default: the active one")
    completed: Line = Field("", max_length=64, description="the phase that is done; default: the present one")
    phase: Line = Field("", max_length=64, description="the phase that begins")
    artifacts: list[Line] = Field(default_factory=list, max_length=100, description="paths or links of what was made")


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


Name = Annotated[Line, StringConstraints(max_length=200)]
RootPath = Annotated[Line, StringConstraints(max_length=1_000)]
Tags = Annotated[list[Tag], Field(max_length=50)]


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


MAX_TEXT = 500_000


class Sanitise(Command):
    """See what would be taken out of a text before it is kept; nothing is written."""

    text: str = Field(max_length=MAX_TEXT, description="what would be kept")
    secret_rules: list[SecretRule] | None = Field(
        None, max_length=MAX_RULES, description="instead of the project's own rules"
    )
    secret_allow: list[Allowed] | None = Field(
        None, max_length=MAX_ALLOWED, description="instead of the project's allow-list"
    )


class FoundSecret(BaseModel):
    """What would be taken out: which rule says so, and where it stands in the text; never what it is."""

    type: str
    rule: str
    description: str
    origins: list[str] = Field(description="where the rule was taken from, with its licence")
    start: int = Field(description="in characters")
    end: int


class Sanitised(BaseModel):
    """A text as it would be kept."""

    text: str
    found: list[FoundSecret]
