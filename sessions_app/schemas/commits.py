"""Commits: what callers send and get."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from memoryhub.core.schemas import LISTED_AS, Command, EntityId, Line, Moment, unlisted
from sessions_app.events import DecisionLink, FileChange


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
