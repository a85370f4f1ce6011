"""Append-only history of changes to people, tokens, members and schedules, written with each change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from django.db import DatabaseError, connections

from memoryhub.core import clock, log
from memoryhub.core.backends.selected import faults, stores
from memoryhub.core.errors import Locked, Unavailable
from memoryhub.core.events.projection import Event
from memoryhub.core.origin import current_origin
from memoryhub.core.stores.store import Scope, current_store, org_store
from memoryhub.models import AccessChange, Subject
from sessions_app.events import PROJECT_DESCRIBED, ProjectDescribed
from sessions_app.selectors import org_of_project

PAGE = 20


@dataclass(frozen=True, slots=True)
class AccessHistory:
    changes: list[AccessChange]
    # Pass it as ``before`` to get the next page; None on the last one.
    earlier: int | None


def note_change(subject: Subject, name: str, what: str, *, by: str | None = None) -> None:
    """Record a change: ``what`` in the past tense, such as ``added as reviewer``; ``by`` is by default the actor."""
    origin = current_origin()
    AccessChange.objects.create(
        at=clock.now(), by=by or origin.actor, door=origin.source, subject=subject, name=name, what=what[:500]
    )


def has_hub() -> bool:
    """Return whether the hub's tables may exist, without creating hub.db: without it there are no people or tokens."""
    is_of_a_test = "mode=memory" in connections["default"].settings_dict["NAME"]
    return is_of_a_test or stores.has_hub()


def history_of(subject: Subject, *, name: str | None = None, before: str = "") -> AccessHistory:
    """Return a page of changes, newest first, of all or of one ``name``.

    Args:
        subject: what the changes are about.
        name: of the person, token, job or place.
        before: the id of a change; ignored if it isn't a number.
    """
    changes_of_subject = AccessChange.objects.filter(subject=subject).order_by("-id")
    if name is not None:
        changes_of_subject = changes_of_subject.filter(name=name)
    if before.isdecimal() and len(before) < len(str(2**63)):
        changes_of_subject = changes_of_subject.filter(id__lt=int(before))
    changes = list(changes_of_subject[: PAGE + 1])
    return AccessHistory(changes[:PAGE], changes[PAGE - 1].id if len(changes) > PAGE else None)


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
    elif after:
        what = f"moved into the organisation {after}"
    else:
        what = f"moved out of the organisation {before}"
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
