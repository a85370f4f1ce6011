"""What can happen in the repository."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticKnownError

from memoryhub.core.event_types import EventGroup, Retention, define_event
from memoryhub.core.rollback import sets_aside
from memoryhub.core.schemas import STORED, GitSha, Instant, Payload
from sessions_app.entries import first_line

DecisionLink = Literal["implements", "reverts", "relates"]
"""What a commit does to a decision."""


# At most so many lines a file, so that the sum over all files of a commit fits a column of 64 bits.
MAX_LINES = 2**31 - 1


def _countable(lines: int, info: ValidationInfo) -> int:
    if info.context == STORED:  # an older hub checked their sum alone
        return lines
    if lines < 0:
        raise PydanticKnownError("greater_than_equal", {"ge": 0})
    if lines > MAX_LINES:
        raise PydanticKnownError("less_than_equal", {"le": MAX_LINES})
    return lines


Lines = Annotated[
    int,
    AfterValidator(_countable),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_LINES}),
]


class FileChange(Payload):
    """One file of a commit; the counts are None for a binary file."""

    path: str
    insertions: Lines | None = None
    deletions: Lines | None = None


class CommitRecorded(Payload):
    """A commit of the repository became known."""

    sha: GitSha
    message: str = ""
    author: str = ""
    committed_at: Instant
    files: list[FileChange] = Field(default_factory=list)
    decision_ids: list[int] = Field(default_factory=list)
    """The decisions that it is evidence of."""
    link_type: DecisionLink = "implements"
    iteration_id: int | None = None
    """The iteration that it belongs to; None for the active one."""


class CommitLinked(Payload):
    """A commit that is known already was linked with decisions, or moved to an iteration."""

    commit_id: int
    sha: GitSha | Literal[""] = ""
    decision_ids: list[int] = Field(default_factory=list)
    link_type: DecisionLink = "implements"
    iteration_id: int | None = None
    """The iteration that it belongs to from now on; None where that stays."""


def _about(payload: Mapping[str, Any]) -> str:
    return first_line(payload.get("message") or payload.get("sha", ""))


COMMITS = EventGroup("commits", "Commits", 70, "commit")

# What is given as evidence of decisions, from either side.
EVIDENCE = sets_aside("evidence", "Evidence of decisions", order=110)

COMMIT_RECORDED = define_event(
    "commit.recorded",
    CommitRecorded,
    label="Commit",
    group=COMMITS,
    retention=Retention.WITH_STREAM,
    rollback=sets_aside("commits", "Commits recorded", order=170, is_cited=True),
    changes_stream=False,
    nouns=("commit", "commits"),
    is_tallied=True,
    about=_about,
)
COMMIT_LINKED = define_event(
    "commit.linked",
    CommitLinked,
    label="Commit linked",
    group=COMMITS,
    retention=Retention.WITH_STREAM,
    rollback=EVIDENCE,
    changes_stream=False,
    about=_about,
)
