"""What can happen in sessions and in the repository."""

from __future__ import annotations

from pydantic import Field

from memoryhub.core.projection import define_event
from memoryhub.core.schemas import Payload
from sessions_app.models import SessionMode, SessionStatus


class SessionStarted(Payload):
    """A session began."""

    session_id: str = Field(min_length=1, max_length=220)
    purpose: str = ""
    mode: SessionMode = SessionMode.WORKING
    directory: str = ""
    agent: str = ""


class SessionEnded(Payload):
    """A session came to its end."""

    session_id: str
    status: SessionStatus
    summary: str = ""


class FileChange(Payload):
    """One file of a commit; the counts are None for a binary file."""

    path: str
    insertions: int | None = None
    deletions: int | None = None


class CommitRecorded(Payload):
    """A commit of the repository became known."""

    sha: str = Field(pattern=r"^[0-9a-f]{7,64}$")
    message: str = ""
    author: str = ""
    committed_at: str
    files: list[FileChange] = Field(default_factory=list)


SESSION_STARTED = define_event("session.started", SessionStarted)
SESSION_ENDED = define_event("session.ended", SessionEnded)
COMMIT_RECORDED = define_event("commit.recorded", CommitRecorded)
