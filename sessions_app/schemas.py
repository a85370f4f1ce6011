"""What callers send and get: the same at REST and MCP."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from memoryhub.core.schemas import Command, IdempotencyKey, Identifier, Paging
from sessions_app.events import FileChange
from sessions_app.models import SessionMode, SessionStatus


class SessionStart(Command):
    """Begin a session."""

    purpose: str = Field("", max_length=2_000, description="what the session is for")
    mode: SessionMode = Field(SessionMode.WORKING, description="working, or scratch for a throw-away space")
    directory: str = Field("", max_length=1_000, description="where the work happens")
    agent: str = Field("", max_length=200, description="who works; default: the client's name")
    session_id: Identifier | None = Field(None, description="default: a new one")
    idempotency_key: IdempotencyKey = None


class SessionEnd(Command):
    """End a session."""

    summary: str = Field("", max_length=20_000, description="what was done, learnt and left open")
    session_id: Identifier | None = Field(
        None, description="default: this connection's session, else the only active one"
    )
    discard: bool = Field(False, description="the session's work is not to be kept")
    idempotency_key: IdempotencyKey = None


class SessionList(Paging):
    """List sessions, newest first."""

    status: SessionStatus | None = Field(None, description="only these")


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
    files: list[dict[str, Any]]
