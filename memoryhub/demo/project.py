"""The sample project: made in a store of its own, never mixed with anything else, and taken away again."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.contributions import opening_of
from memoryhub.core.errors import Conflict, NotFound
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import StoreId, forget, project_store, use_store
from memoryhub.demo.player import Stage
from memoryhub.demo.story import Scene, story
from memoryhub.ops.backups.copying import folder_of
from memoryhub.registry.projects import ProjectCreate, create_project
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session

TRACE = "memory-hub demo"
"""The trace of every event that the story has written; what lacks it somebody else did."""
_HUBS_OWN = "job"
_STEP_MINUTES = 3.0


@dataclass(frozen=True, slots=True)
class Contents:
    """How many events the store has, and how many of them neither the story nor a job has written."""

    events: int
    others: int

    @property
    def is_demo(self) -> bool:
        """Whether the store was made by the story."""
        return self.others < self.events


def demo_store() -> StoreId:
    """Return the id of the sample project's store."""
    return project_store(story().project["id"])


def make_demo() -> int:
    """Make the sample project and return how many events it has.

    Raises:
        Conflict: there is a project of its id already.
    """
    store = demo_store()
    if store.path.exists():
        found = contents()
        if found.is_demo:
            raise Conflict(f"the project {store.name!r} is there already; --remove takes it away")
        raise Conflict(f"there is a project {store.name!r} with {_events(found.events)} of its own; it is left alone")
    now = clock.now()
    stage = Stage(directory=story().project["root_path"])
    first = story().scene[0].begins(now) - timedelta(hours=1)
    with clock.frozen(first), use_origin(source="cli", actor="memory-hub", trace_id=TRACE):
        create_project(command=ProjectCreate.model_validate(story().project))
    with use_store(store), use_origin(trace_id=TRACE):
        for scene in story().scene:
            _play(scene, stage, now)
        return contents().events


def remove_demo(*, also_others: bool = False) -> int:
    """Delete the sample project's store and return how many events it had.

    Args:
        also_others: though somebody else has written to it since.

    Raises:
        NotFound: it is not there.
        Conflict: it is no sample project, or somebody else has written to it.
    """
    store = demo_store()
    if not store.path.exists():
        raise NotFound(f"there is no project {store.name!r}; `memory-hub demo` makes it")
    found = contents()
    if not found.is_demo:
        raise Conflict(f"the project {store.name!r} is not the sample one; it is left alone")
    if found.others and not also_others:
        raise Conflict(
            f"the project {store.name!r} has {_events(found.others)} beyond the sample's; add --force to delete it "
            "with what was done in it since"
        )
    forget(store)
    gone = env.home() / f".demo-removed-{os.getpid()}"
    store.path.parent.rename(gone)  # at once for everybody; a store without its folder is none
    shutil.rmtree(gone)
    shutil.rmtree(folder_of(store), ignore_errors=True)  # backups without a store are what a lost store leaves
    return found.events


def contents() -> Contents:
    """Return whose events the store has.

    Raises:
        Unavailable: it can't be read.
    """
    with use_store(demo_store()):
        events = RawEvent.objects.all()
        return Contents(events.count(), events.exclude(trace_id=TRACE).exclude(source=_HUBS_OWN).count())


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
                stage.tell(step)


def _open(scene: Scene, directory: str) -> None:
    """Begin a session as its client does: it gets the pack of what is known."""
    command = SessionStart(session_id=scene.session, purpose=scene.purpose, directory=directory)
    with use_origin(source="hook"):
        start_session(command=command)
        opening_of(scene.session)
