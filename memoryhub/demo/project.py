"""The sample project: create and remove it; its content is in ``story.toml``."""

from __future__ import annotations

import shutil
import tomllib
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memoryhub.core import clock
from memoryhub.core.backends.selected import stores
from memoryhub.core.contributions import opening_of
from memoryhub.core.errors import Conflict, NotFound
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import SAMPLE_TRACE, use_origin
from memoryhub.core.stores.store import StoreId, forget, project_store, use_store
from memoryhub.demo.player import Stage
from memoryhub.ops.backups.files import backup_folder
from memoryhub.registry.projects import ProjectCreate, create_project
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session

_HUBS_OWN = "job"
_STEP_MINUTES = 3.0
_FILE = Path(__file__).with_name("story.toml")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Page(_Part):
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
    pages: tuple[Page, ...]


@cache
def story() -> Story:
    return Story.model_validate(tomllib.loads(_FILE.read_text("utf-8")))


@dataclass(frozen=True, slots=True)
class Contents:
    """Counts of all events, and of those that neither the story nor a job wrote."""

    events: int
    others: int

    # A store without events is what a command leaves that was killed before its first one
    @property
    def is_demo(self) -> bool:
        return self.others < self.events or not self.events


def demo_store() -> StoreId:
    return project_store(story().project["id"])


def make_demo() -> int:
    """Create the sample project and return its number of events."""
    store = demo_store()
    if stores.exists(store):
        found = contents()
        if found.is_demo:
            raise Conflict(f"the project {store.name!r} already exists; delete it with --remove")
        raise Conflict(f"a project {store.name!r} with {_events(found.events)} of its own exists; nothing was changed")
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

    Args:
        also_others: delete it even if someone else has written to it.

    Raises:
        NotFound: it does not exist.
        Conflict: it is not the sample project, or someone else has written to it.
    """
    store = demo_store()
    if not stores.exists(store):
        raise NotFound(f"there is no project {store.name!r}; create it with `memory-hub demo`")
    found = contents()
    if not found.is_demo:
        raise Conflict(f"the project {store.name!r} is not the sample project; nothing was deleted")
    if found.others and not also_others:
        raise Conflict(
            f"the project {store.name!r} has {_events(found.others)} beyond the sample's; add --force to delete "
            "them too"
        )
    forget(store)
    shutil.rmtree(
        backup_folder(store), ignore_errors=True
    )  # backups without a store would look like those of a lost store
    stores.remove(store)
    return found.events


def contents() -> Contents:
    with use_store(demo_store()):
        events = RawEvent.objects.all()
        return Contents(events.count(), events.exclude(trace_id=SAMPLE_TRACE).exclude(source=_HUBS_OWN).count())


def _events(count: int) -> str:
    return f"{count:,} event{'s' * (count != 1)}"


def _play(scene: Scene, stage: Stage, now: datetime) -> None:
    moment = scene.begins(now)
    stage.session, stage.client = scene.session, scene.person or scene.client
    door = "admin" if scene.person else "mcp"
    with ExitStack() as stack:
        stack.enter_context(use_origin(source=door, actor=stage.client, session_id=scene.session))
        if scene.session:
            with clock.frozen(moment):
                _open(scene, stage.directory)
        for step in scene.steps:
            moment += timedelta(minutes=step.get("wait", _STEP_MINUTES))
            with clock.frozen(moment):
                stage.play(step)


# As a client starts a session: with the context pack.
def _open(scene: Scene, directory: str) -> None:
    command = SessionStart(session_id=scene.session, purpose=scene.purpose, directory=directory)
    with use_origin(source="hook"):
        start_session(command=command)
        opening_of(scene.session)
