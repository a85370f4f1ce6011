"""Record when a project enters or leaves an organisation: the members of the organisation gain or lose access to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from django.db import DatabaseError

from memoryhub.core import log
from memoryhub.core.backends.selected import faults, stores
from memoryhub.core.errors import Locked, Unavailable
from memoryhub.core.events.projection import Event
from memoryhub.core.stores.store import Scope, current_store, org_store
from memoryhub.models import Subject
from memoryhub.registry.access_history import has_hub, note_change
from sessions_app.events import PROJECT_DESCRIBED, ProjectDescribed
from sessions_app.selectors import org_of_project


# Also for events of a roll-back, which puts fields of a description back
@log.on_append(PROJECT_DESCRIBED)
def _note_described(event: Event[ProjectDescribed]) -> None:
    if "org" in event.payload.model_fields_set:
        log.before_commit(partial(_note, org_of_project(), event.payload.org))


@contextmanager
def noting_moves() -> Iterator[None]:
    """Record a move of the current project by events that are copied inside, as an import does."""
    before = org_of_project()
    yield
    _note(before, org_of_project())


def _note(before: str | None, after: str | None) -> None:
    project = current_store()
    if before == after or project.scope is not Scope.PROJECT or not has_hub():
        return
    if before and after:
        what = f"moved from the organisation {before} into {after}"
    else:
        what = f"moved into the organisation {after}" if after else f"moved out of the organisation {before}"
    try:
        note_change(Subject.MEMBER, project.place, what)
        if before:
            note_change(Subject.MEMBER, org_store(before).place, f"left by the project {project.name}")
        if after:
            note_change(Subject.MEMBER, org_store(after).place, f"given the project {project.name}")
    except DatabaseError as error:
        if faults.is_missing_table(error):
            return  # a hub that was never prepared has no people
        if faults.is_locked(error):
            raise Locked(f"{stores.HUB_NAME} is locked by another process") from error
        raise Unavailable(f"{stores.HUB_NAME} cannot be written: {error}") from error
