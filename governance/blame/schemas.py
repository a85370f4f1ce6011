"""Input and output of blame, shared by REST, MCP, the command and the admin."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from memoryhub.core.schemas import Command, Line, self_evident, unlisted


class BlameRequest(Command):
    """Explain lines of a file."""

    file: Line = Field(min_length=1, max_length=4_000, description="path from the repository's top")
    first: int = Field(1, ge=1, le=10_000_000, description="first line", json_schema_extra=self_evident)
    last: int | None = Field(None, ge=1, le=10_000_000, description="last line; default: the file's end")
    limit: int = Field(20, ge=1, le=10_000, description="most ranges of lines", json_schema_extra=unlisted)


class BlamedCommit(BaseModel):
    """The commit that lines come from."""

    sha: str
    # None if it is not recorded in the hub
    id: int | None = None
    author: str = ""
    committed_at: datetime | None = None
    summary: str = ""
    # The file's path in that commit, if it was another one
    path: str = ""


class BlamedDecision(BaseModel):
    """A decision that the commit is linked to."""

    id: int
    title: str
    status: str
    # How the commit is linked: ``implements``, ``refers_to``, …
    link: str


class BlamedSession(BaseModel):
    """The session in which the commit was recorded; if there was none, that of its decision."""

    id: int
    session_id: str
    title: str
    agent: str


class BlamedPrompt(BaseModel):
    """The prompt of the turn in which that happened."""

    # Position of its event
    id: int
    text: str


class BlamedGuideline(BaseModel):
    """A guideline that was in force at the time of the commit."""

    id: int
    title: str
    priority: int | None = None
    # Whether a context pack of the session had it
    given: bool = False


class BlamedRange(BaseModel):
    """Adjacent lines of one commit, with what led to it as far as is known."""

    first: int
    last: int
    commit: BlamedCommit | None = None
    decisions: list[BlamedDecision] = Field(default_factory=list)
    session: BlamedSession | None = None
    prompt: BlamedPrompt | None = None
    guidelines: list[BlamedGuideline] = Field(default_factory=list)
    # How many more guidelines were in force
    more_guidelines: int = 0
    # Where the trail ends, and what would continue it; "" if it is complete
    ends: str = ""


class KnownEntry(BaseModel):
    """A memory or decision about the file."""

    type: str
    id: int
    title: str
    kind: str = ""
    # ``governs`` or ``mentions``
    how: str


class BlameView(BaseModel):
    """What is known about lines of a file."""

    file: str
    first: int
    last: int
    ranges: list[BlamedRange]
    # Ranges beyond ``limit``
    more_ranges: int = 0
    known: list[KnownEntry]
