"""Events of commits and iterations, and of the description of a project or an organisation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, StringConstraints, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticKnownError

from memoryhub.core.entities import define_entity
from memoryhub.core.events.event_types import EventGroup, Retention, TurnRule, define_event
from memoryhub.core.events.rollback import Effect, Values, define_effect, reverses, sets_aside, stays
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import STORED, EventRef, GitSha, Instant, Payload, StoredTag
from memoryhub.core.stores.store import SLUG
from memoryhub.core.text import first_line
from sessions_app.event_summaries import joined
from sessions_app.events.sessions import SETTINGS

DecisionLink = Literal["implements", "reverts", "relates"]


# Keeps the sum over all files of a commit within a 64-bit column.
MAX_LINES = 2**31 - 1


def _countable(lines: int, info: ValidationInfo) -> int:
    if info.context == STORED:  # older versions checked only the sum
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
    sha: GitSha
    message: str = ""
    author: str = ""
    committed_at: Instant
    files: list[FileChange] = Field(default_factory=list)
    decision_ids: list[EventRef] = Field(default_factory=list)
    link_type: DecisionLink = "implements"
    # The decisions that the message names, if it was written where they had other ids.
    mentions: dict[EventRef, DecisionLink] | None = None
    # None for the active one.
    iteration_id: EventRef | None = None


class CommitLinked(Payload):
    """A recorded commit was linked with decisions, or moved to an iteration."""

    commit_id: EventRef
    sha: GitSha | Literal[""] = ""
    decision_ids: list[EventRef] = Field(default_factory=list)
    link_type: DecisionLink = "implements"
    # None leaves it in its iteration.
    iteration_id: EventRef | None = None


def _about_commit(payload: Mapping[str, Any]) -> str:
    return first_line(payload.get("message") or payload.get("sha", ""))


define_entity(
    "commit", "SELECT id, substr(message, 1, 200) AS title, '' AS kind, false AS deleted FROM sessions_app_commit"
)

COMMITS = EventGroup("commits", "Commits", 70, "commit")

# Shared by both directions: a commit that names a decision, and a decision that names a commit.
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
    about=_about_commit,
)
COMMIT_LINKED = define_event(
    "commit.linked",
    CommitLinked,
    label="Commit linked",
    group=COMMITS,
    retention=Retention.WITH_STREAM,
    rollback=EVIDENCE,
    changes_stream=False,
    about=_about_commit,
)


class IterationStarted(Payload):
    command: str
    description: str = ""


class IterationAdvanced(Payload):
    iteration_id: EventRef
    completed: str = ""
    phase: str = ""
    artifacts: list[str] = Field(default_factory=list)


class IterationEnded(Payload):
    iteration_id: EventRef
    outcome: str = ""


def _about(payload: Mapping[str, Any]) -> str:
    return joined(payload.get("command"), payload.get("description"))


def _about_phases(payload: Mapping[str, Any]) -> str:
    done, begun = payload.get("completed"), payload.get("phase")
    return ", ".join([*([f"{done} done"] if done else []), *([f"{begun} started"] if begun else [])]) or "artifacts"


WORK = EventGroup("work", "Phases and iterations", 40, "phase")

_PROGRESS_STAYS = stays("the iteration keeps its phase, artifacts and outcome")

_define = partial(define_event, group=WORK, retention=Retention.WITH_STREAM, changes_stream=False)

ITERATION_STARTED = _define(
    "iteration.started",
    IterationStarted,
    label="Iteration started",
    rollback=sets_aside("iterations", "Iterations begun", order=180),
    about=_about,
)
ITERATION_ADVANCED = _define(
    "iteration.advanced", IterationAdvanced, label="Next phase", rollback=_PROGRESS_STAYS, about=_about_phases
)
ITERATION_COMPLETED = _define(
    "iteration.completed", IterationEnded, label="Iteration completed", rollback=_PROGRESS_STAYS
)
ITERATION_ABANDONED = _define(
    "iteration.abandoned", IterationEnded, label="Iteration abandoned", rollback=_PROGRESS_STAYS
)


MAX_METADATA_CHARACTERS = 16_000
MAX_METADATA_DEPTH = 10


def _bounded(metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
    _check_depth(metadata, MAX_METADATA_DEPTH)
    size = len(json.dumps(metadata, ensure_ascii=False, allow_nan=False))
    if size > MAX_METADATA_CHARACTERS:
        raise ValueError(
            f"it has {size:,} characters as JSON and may have at most {MAX_METADATA_CHARACTERS:,}; "
            "write longer texts as a memory and give its id here"
        )
    return metadata


def _check_depth(value: JsonValue, levels: int) -> None:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if items and not levels:
        raise ValueError(f"it may be nested at most {MAX_METADATA_DEPTH} levels deep")
    for item in items:
        _check_depth(item, levels - 1)


Slug = Annotated[str, StringConstraints(pattern=f"^{SLUG.pattern}$")]
Name = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)]
Description = Annotated[str, StringConstraints(strip_whitespace=True, max_length=4_000)]
RootPath = Annotated[str, StringConstraints(strip_whitespace=True, max_length=1_000)]
Metadata = Annotated[dict[str, JsonValue], AfterValidator(_bounded)]
Tags = Annotated[list[StoredTag], Field(max_length=50)]


class ProjectDescribed(Payload):
    """Fields that are not set keep their value."""

    name: Name = ""
    description: Description = ""
    root_path: RootPath = ""
    # None for no organisation.
    org: Slug | None = None
    metadata: Metadata = Field(default_factory=dict)
    tags: Tags = Field(default_factory=list)


PROJECT_DESCRIBED = define_event(
    "project.described",
    ProjectDescribed,
    label="Project described",
    is_local=True,
    group=SETTINGS,
    retention=Retention.KEPT,
    rollback=reverses("profile", "The project described", order=160, by="describe", can_leave=False),
    changes_stream=False,
    act=Act.GOVERN,
    turn=TurnRule.OPTIONAL,
)


def _default(name: str) -> JsonValue:
    default: JsonValue = ProjectDescribed.model_fields[name].get_default(call_default_factory=True)
    return default


define_effect(
    Effect(
        "describe",
        100,
        "field put back",
        Values(
            read=lambda _position, payload: payload,
            write=lambda step, _reason: ProjectDescribed(**{step.name: step.after}),
            default=_default,
        ),
    )
)
