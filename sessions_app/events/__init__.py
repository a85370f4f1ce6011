"""Events of sessions, turns, commits and iterations, and of the settings and description of a project."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, StringConstraints, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticKnownError

from memoryhub.config.retention_rules import EndedWith
from memoryhub.core.entities import define_entity
from memoryhub.core.events.event_types import EventGroup, Retention, TurnRule, define_event
from memoryhub.core.events.rollback import NOTHING_DEPENDS, Effect, Values, define_effect, reverses, sets_aside, stays
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import STORED, EventRef, GitSha, Instant, Payload, Sha256, StoredTag
from memoryhub.core.stores.store import SLUG
from memoryhub.core.text import first_line
from sessions_app.models import SessionMode, SessionStatus


def joined(*parts: Any) -> str:
    return ": ".join(first_line(part) for part in parts if part and isinstance(part, str))


class SessionStarted(Payload):
    session_id: str = Field(min_length=1, max_length=220)
    purpose: str = ""
    mode: SessionMode = SessionMode.WORKING
    directory: str = ""
    agent: str = ""
    # As the client gave it; it may hold auto_promote.
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    # Whether memory is held out of the session; None if the project held out none
    held_out: bool | None = None
    # An imported session happened before its event; so did its end and its turns
    started_at: Instant | None = None


class SessionEnded(Payload):
    session_id: str
    status: SessionStatus
    summary: str = ""
    # What happens to the entries of a scratch session.
    entries: EndedWith | None = None
    # Ids of entries that are promoted even if the session is discarded.
    kept: list[EventRef] = Field(default_factory=list)
    ended_at: Instant | None = None


class SessionTouched(Payload):
    session_id: str


class ProjectConfigured(Payload):
    """Changed settings by name; None resets one to its default."""

    settings: dict[str, JsonValue]


def _purpose(payload: Mapping[str, Any]) -> str:
    return str(payload.get("purpose") or payload.get("agent") or payload.get("session_id", ""))


def _outcome(payload: Mapping[str, Any]) -> str:
    return str(payload.get("summary") or payload.get("status", ""))


def _name(payload: Mapping[str, Any]) -> str:
    return str(payload.get("session_id", ""))


def _settings(payload: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in payload.get("settings", {}).items())


define_entity(
    "session",
    "SELECT id, CASE purpose WHEN '' THEN session_id ELSE purpose END AS title, '' AS kind, false AS deleted "
    "FROM sessions_app_session",
    shown_by="session_list",
)
# The project itself has the id 0.
define_entity(
    "project",
    "SELECT 0 AS id, coalesce((SELECT name FROM sessions_app_profile LIMIT 1), '') AS title, '' AS kind, "
    "false AS deleted",
)

SESSIONS = EventGroup("sessions", "Sessions and turns", 10, "session")
SETTINGS = EventGroup("settings", "Settings and description", 80)

_BEGUN_OR_ENDED = sets_aside("sessions", "Sessions begun or ended", order=190, is_cited=True)
_STATE_STAYS = stays("the session keeps the state that it has now")

_define = partial(
    define_event, group=SESSIONS, retention=Retention.WITH_STREAM, changes_stream=False, turn=TurnRule.NONE
)

SESSION_STARTED = _define(
    "session.started", SessionStarted, label="Session started", rollback=_BEGUN_OR_ENDED, about=_purpose
)
SESSION_ENDED = _define("session.ended", SessionEnded, label="Session ended", rollback=_BEGUN_OR_ENDED, about=_outcome)
SESSION_PAUSED = _define("session.paused", SessionTouched, label="Session paused", rollback=_STATE_STAYS, about=_name)
SESSION_RESUMED = _define(
    "session.resumed", SessionTouched, label="Session resumed", rollback=_STATE_STAYS, about=_name
)
_define_setting = partial(
    define_event,
    is_local=True,
    group=SETTINGS,
    retention=Retention.KEPT,
    changes_stream=False,
    act=Act.GOVERN,
    turn=TurnRule.OPTIONAL,
)

PROJECT_CONFIGURED = _define_setting(
    "project.configured",
    ProjectConfigured,
    label="Settings",
    by_pack_only=True,
    rollback=reverses("settings", "Settings changed", order=150, by="configure", can_leave=False),
    about=_settings,
)

define_effect(
    Effect(
        "configure",
        90,
        "setting put back",
        Values(
            read=lambda _position, payload: payload.get("settings", {}),
            write=lambda step, _reason: ProjectConfigured(settings={step.name: step.after}),
        ),
    )
)


class TurnBegan(Payload):
    """Only the hash of the token is stored; a turn that the hub opens itself has none."""

    session_id: str
    turn_id: str
    ack_token_hash: Sha256 | Literal[""] = ""
    ack_seconds: int
    automatic: bool = False
    began_at: Instant | None = None


class TurnEnded(Payload):
    session_id: str
    turn_id: str
    summary: str = ""
    ended_at: Instant | None = None


class TurnExpired(Payload):
    session_id: str
    turn_id: str


_TURN_BEGUN_OR_ENDED = sets_aside("turns", "Turns begun or ended", order=200)

_define_turn_event = partial(
    define_event, group=SESSIONS, retention=Retention.KEPT, changes_stream=False, turn=TurnRule.NONE
)

TURN_BEGAN = _define_turn_event(
    "turn.began", TurnBegan, label="Turn began", rollback=_TURN_BEGUN_OR_ENDED, nouns=("turn", "turns"), is_tallied=True
)
TURN_ENDED = _define_turn_event(
    "turn.ended",
    TurnEnded,
    label="Turn summary",
    rollback=_TURN_BEGUN_OR_ENDED,
    about=lambda payload: str(payload.get("summary", "")),
)
TURN_EXPIRED = _define_turn_event(
    "turn.expired",
    TurnExpired,
    label="Turn incomplete",
    rollback=NOTHING_DEPENDS,
    own_icon="clock",
    about=lambda _payload: "Timed out without an event; the turn is incomplete",
)


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
    int, AfterValidator(_countable), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_LINES})
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


define_entity(
    "commit", "SELECT id, substr(message, 1, 200) AS title, '' AS kind, false AS deleted FROM sessions_app_commit"
)

COMMITS = EventGroup("commits", "Commits", 70, "commit")

# Shared by both directions: a commit that names a decision, and a decision that names a commit.
EVIDENCE = sets_aside("evidence", "Evidence of decisions", order=110)

_define_commit_event = partial(
    define_event,
    group=COMMITS,
    retention=Retention.WITH_STREAM,
    changes_stream=False,
    about=lambda payload: first_line(payload.get("message") or payload.get("sha", "")),
)

COMMIT_RECORDED = _define_commit_event(
    "commit.recorded",
    CommitRecorded,
    label="Commit",
    rollback=sets_aside("commits", "Commits recorded", order=170, is_cited=True),
    nouns=("commit", "commits"),
    is_tallied=True,
)
COMMIT_LINKED = _define_commit_event("commit.linked", CommitLinked, label="Commit linked", rollback=EVIDENCE)


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


def _about_phases(payload: Mapping[str, Any]) -> str:
    changes = []
    if payload.get("completed"):
        changes.append(f"{payload['completed']} done")
    if payload.get("phase"):
        changes.append(f"{payload['phase']} started")
    return ", ".join(changes) or "artifacts"


WORK = EventGroup("work", "Phases and iterations", 40, "phase")

_PROGRESS_STAYS = stays("the iteration keeps its phase, artifacts and outcome")

_define_work = partial(define_event, group=WORK, retention=Retention.WITH_STREAM, changes_stream=False)

ITERATION_STARTED = _define_work(
    "iteration.started",
    IterationStarted,
    label="Iteration started",
    rollback=sets_aside("iterations", "Iterations begun", order=180),
    about=lambda payload: joined(payload.get("command"), payload.get("description")),
)
ITERATION_ADVANCED = _define_work(
    "iteration.advanced", IterationAdvanced, label="Next phase", rollback=_PROGRESS_STAYS, about=_about_phases
)
ITERATION_COMPLETED = _define_work(
    "iteration.completed", IterationEnded, label="Iteration completed", rollback=_PROGRESS_STAYS
)
ITERATION_ABANDONED = _define_work(
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
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list):
        return
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


PROJECT_DESCRIBED = _define_setting(
    "project.described",
    ProjectDescribed,
    label="Project described",
    rollback=reverses("profile", "The project described", order=160, by="describe", can_leave=False),
)


define_effect(
    Effect(
        "describe",
        100,
        "field put back",
        Values(
            read=lambda _position, payload: payload,
            write=lambda step, _reason: ProjectDescribed(**{step.name: step.after}),
            default=lambda name: ProjectDescribed.model_fields[name].get_default(call_default_factory=True),
        ),
    )
)
