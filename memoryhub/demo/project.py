"""The sample project: create and remove it; its content is in ``story.toml``."""

from __future__ import annotations

import hashlib
import shutil
import tomllib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.retention.schemas import HoldPlace
from governance.retention.service import place_hold
from memories.events import USE, Verdict
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_memory
from memories.schemas import MemoryGet, MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.selectors import get_memories
from memories.services import update_memory, write_memory
from memories.services.links import create_relation
from memoryhub.core import clock, log
from memoryhub.core.backends.selected import stores
from memoryhub.core.contributions import opening_of
from memoryhub.core.errors import ConflictError, NotFound
from memoryhub.core.events.event_types import names_where
from memoryhub.core.origin import SAMPLE_TRACE, use_origin
from memoryhub.core.stores.store import StoreId, forget, project_store, use_store
from memoryhub.core.text import counted
from memoryhub.ops.backups.service import backup_folder
from memoryhub.registry.projects import ProjectCreate, create_project
from sessions_app.hook_parser import parse_hook
from sessions_app.models import Turn, TurnStatus
from sessions_app.schemas import (
    CommitRead,
    IterationAdvance,
    IterationComplete,
    IterationStart,
    SessionEnd,
    SessionStart,
    SettingsChange,
)
from sessions_app.services import end_session, record_commit, start_session
from sessions_app.services.capture import capture
from sessions_app.services.profile import change_settings
from sessions_app.services.work import advance_iteration, complete_iteration, start_iteration

_HUBS_OWN = "job"
_STEP_MINUTES = 3.0
_FILE = Path(__file__).with_name("story.toml")
# Names of events and tools by client
_PROMPT = {"claude-code": "UserPromptSubmit", "gemini-cli": "BeforeAgent"}
_DONE = {"claude-code": "PostToolUse", "gemini-cli": "AfterTool"}
_FAILED = _DONE | {"claude-code": "PostToolUseFailure"}
_ANSWER = {"claude-code": "Stop", "gemini-cli": "AfterAgent"}
_SHELL = {"claude-code": "Bash", "gemini-cli": "run_shell_command"}
_EDITOR = {"claude-code": "Edit", "gemini-cli": "replace"}

# The service of a word, and what the word's value is in its command
_SERVICES: dict[str, tuple[Callable[..., Any], type[BaseModel], str]] = {
    "remember": (write_memory, MemoryWrite, "title"),
    "revise": (update_memory, MemoryUpdate, "id"),
    "decide": (record_decision, DecisionRecord, "title"),
    "fetch": (get_memories, MemoryGet, "ids"),
    "relate": (create_relation, RelationCreate, "source"),
    "advance": (advance_iteration, IterationAdvance, "phase"),
    "complete": (complete_iteration, IterationComplete, "outcome"),
    "set": (change_settings, SettingsChange, "settings"),
    "hold": (place_hold, HoldPlace, "stream_id"),
}

Step = Mapping[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DemoPage(_Part):
    path: str
    see: str


class Scene(_Part):
    """A session of an agent or, with ``person``, a person's work in the admin."""

    session: str = ""
    person: str = ""
    client: str = "claude-code"
    purpose: str = ""
    days_ago: int = Field(ge=1)
    at: time
    steps: tuple[dict[str, Any], ...]

    def begins(self, now: datetime) -> datetime:
        return datetime.combine(now.date() - timedelta(days=self.days_ago), self.at, tzinfo=now.tzinfo)


class Story(_Part):
    project: dict[str, Any]
    scene: tuple[Scene, ...]
    pages: tuple[DemoPage, ...]


@cache
def story() -> Story:
    return Story.model_validate(tomllib.loads(_FILE.read_text("utf-8")))


@dataclass(frozen=True, slots=True)
class DemoContents:
    """Counts of all events, of those that neither the story nor a job wrote, and of those that change something."""

    events: int
    foreign: int
    # Without records of what was read
    changes: int

    # A store without events is what a command leaves that was killed before its first one
    @property
    def is_demo(self) -> bool:
        return self.foreign < self.events or not self.events


@dataclass(slots=True)
class Stage:
    """The current scene, and the ids of earlier steps by name.

    Each word of the story calls the service that a client, an agent or a person would use.
    """

    directory: str
    ids: dict[str, int] = field(default_factory=dict)
    session: str = ""
    client: str = ""
    events: int = 0

    def play(self, step: Step) -> None:
        word = next(iter(step))
        fields = {name: self._resolved(value) for name, value in step.items() if name not in ("as", "wait", "by")}
        turns = Turn.objects.filter(session_id=self.session, status=TurnStatus.OPEN).order_by("-id")
        turn = turns.values_list("turn_id", flat=True).first() or ""
        with use_origin(turn_id=str(turn), actor=step.get("by", self.client)):
            if word in _SERVICES:
                service, schema, name = _SERVICES[word]
                result = service(command=schema(**{name: fields.pop(word)}, **fields))
            else:
                result = getattr(self, f"_{word}")(fields)
        if "as" in step:
            self.ids[step["as"]] = result.id

    def hook(self, event: Mapping[str, str], **data: Any) -> None:
        self.events += 1
        data |= {"session_id": self.session, "cwd": self.directory}
        hook_event = parse_hook(client=self.client, event=event[self.client], data=data)
        with use_origin(source="hook", turn_id=""):
            capture(event=hook_event, idempotency_key=f"demo-{self.events}")

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("@"):
            return self.ids[value[1:]]
        return [self._resolved(item) for item in value] if isinstance(value, list) else value

    def _prompt(self, step: Step) -> None:
        self.hook(_PROMPT, prompt=step["prompt"])

    def _run(self, step: Step) -> None:
        output, code = step["output"], step.get("fails", 0)
        text = f"{output}\nExit code: {code}"
        response = {"stdout": output, "exit_code": code, "llmContent": text}
        call = {"tool_name": _SHELL[self.client], "tool_input": {"command": step["run"]}, "tool_response": response}
        self.hook(_FAILED if code else _DONE, **call, error=text)

    def _edit(self, step: Step) -> None:
        change = {"file_path": step["edit"], "old_string": step["was"], "new_string": step["now"]}
        self.hook(_DONE, tool_name=_EDITOR[self.client], tool_input=change)

    def _answer(self, step: Step) -> None:
        self.hook(_ANSWER, last_assistant_message=step["answer"], prompt_response=step["answer"])

    def _end(self, step: Step) -> None:
        end_session(command=SessionEnd(session_id=self.session, summary=step["end"]))

    def _commit(self, step: Step) -> Any:
        files = [{"path": path, "insertions": more, "deletions": less} for path, more, less in step["files"]]
        body = f"\n\nThis reverts commit {_sha(step['undoes'])}." if "undoes" in step else ""
        fields = {
            "sha": _sha(step["commit"]),
            "message": step["commit"] + body,
            "author": "Maya Lind <maya@tidewatch.example>",
            "committed_at": clock.now(),
            "files": files,
            "decision_ids": step.get("implements", []),
        }
        return record_commit(command=CommitRead.model_validate(fields))

    def _begin(self, step: Step) -> Any:
        iteration = start_iteration(command=IterationStart(command=step["begin"], description=step["description"]))
        return advance_iteration(command=IterationAdvance(id=iteration.id, phase=step["phase"]))

    def _accept(self, step: Step) -> Any:
        return review_memory(command=ReviewVerdict(id=step["accept"], reason=step["reason"], verdict=Verdict.ACCEPTED))


def _sha(subject: str) -> str:
    return hashlib.sha1(subject.encode(), usedforsecurity=False).hexdigest()


def demo_store() -> StoreId:
    return project_store(story().project["id"])


def make_demo() -> int:
    """Create the sample project and return its number of events."""
    store = demo_store()
    if stores.exists(store):
        before = contents()
        if before.is_demo:
            raise ConflictError(f"the project {store.name!r} already exists; delete it with --remove")
        raise ConflictError(
            f"a project {store.name!r} with {counted(before.events, 'event')} of its own exists; nothing was changed"
        )
    now = clock.now()
    stage = Stage(directory=story().project["root_path"])
    first = story().scene[0].begins(now) - timedelta(hours=1)
    with clock.frozen(first), use_origin(source="cli", actor="memory-hub", trace_id=SAMPLE_TRACE):
        create_project(command=ProjectCreate.model_validate(story().project))
    with use_store(store), use_origin(trace_id=SAMPLE_TRACE):
        for scene in story().scene:
            _play(scene, stage, now)
        return contents().events


def remove_demo(*, also_others: bool = False) -> int:
    """Delete the sample project's store and return its number of events.

    Raises:
        NotFound: it does not exist.
        ConflictError: it is not the sample project, or someone else has written to it, unless ``also_others``.
    """
    store = demo_store()
    if not stores.exists(store):
        raise NotFound(f"there is no project {store.name!r}; create it with `memory-hub demo`")
    demo = contents()
    if not demo.is_demo:
        raise ConflictError(f"the project {store.name!r} is not the sample project; nothing was deleted")
    if demo.changes and not also_others:
        raise ConflictError(
            f"the project {store.name!r} has {counted(demo.changes, 'event')} beyond the sample's; "
            "add --force to delete them too"
        )
    forget(store)
    # Backups without a store would look like those of a lost store
    shutil.rmtree(backup_folder(store), ignore_errors=True)
    stores.remove(store)
    return demo.events


def contents() -> DemoContents:
    with use_store(demo_store()):
        events = log.events()
        foreign = events.exclude(trace_id=SAMPLE_TRACE).exclude(source=_HUBS_OWN)
        reads = names_where(lambda event_type: event_type.group is USE)
        return DemoContents(events.count(), foreign.count(), foreign.exclude(event_type__in=reads).count())


def _play(scene: Scene, stage: Stage, now: datetime) -> None:
    moment = scene.begins(now)
    stage.session, stage.client = scene.session, scene.person or scene.client
    door = "admin" if scene.person else "mcp"
    with ExitStack() as stack:
        stack.enter_context(use_origin(source=door, actor=stage.client, session_id=scene.session))
        if scene.session:
            # As a client starts a session: with the context pack
            command = SessionStart(session_id=scene.session, purpose=scene.purpose, directory=stage.directory)
            with clock.frozen(moment), use_origin(source="hook"):
                start_session(command=command)
                opening_of(scene.session)
        for step in scene.steps:
            moment += timedelta(minutes=step.get("wait", _STEP_MINUTES))
            with clock.frozen(moment):
                stage.play(step)
