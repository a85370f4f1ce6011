"""The findings about a project, as JSON."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field

# Items of evidence that a finding names, and sessions in which a thing must have happened to recur
MOST_EVIDENCE, LEAST_SESSIONS = 3, 2


class FindingKind(StrEnum):
    """What a finding is about."""

    ERROR = "error"
    COMMAND = "command"
    FILE = "file"
    DECISIONS = "decisions"
    SECRETS = "secrets"

    @property
    def label(self) -> str:
        return _LABELS[self.value]


_LABELS = {
    "error": "Error met most",
    "command": "Command that fails first",
    "file": "File with most corrections",
    "decisions": "Decisions that contradict",
    "secrets": "Secrets that were masked",
}


class FindingEvidence(BaseModel):
    """An event, a commit, a memory or a decision that shows a finding."""

    # Position of the event, or id of the memory or decision
    id: int
    # "command", "prompt", "commit", "memory", "decision" or "event"
    type: str
    # One line, cut to 240 characters
    text: str
    # Empty outside any session
    session_id: str = ""
    # When it happened; None if that is not known
    at: datetime | None = None


class ProjectFinding(BaseModel):
    """One statement about the project."""

    kind: FindingKind
    # The error, the command or the file; empty for the others
    subject: str = ""
    sentence: str
    # How often it was met; sessions in which, 0 where they do not matter
    count: int
    sessions: int = 0
    # At most MOST_EVIDENCE, the newest first
    evidence: list[FindingEvidence]
    # What to do about it
    advice: str


class FindingsReport(BaseModel):
    """The findings about a project, at most one of each kind; empty if its events show none."""

    findings: list[ProjectFinding] = Field(default_factory=list)
    # What was read
    sessions: int
    commits: int
    # Whether older sessions were left out
    is_partial: bool = False
