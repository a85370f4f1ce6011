from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from memoryhub.config.current_settings import current_folder
from memoryhub.config.identity import bound_folders
from memoryhub.config.repository import resolved
from memoryhub.core import log
from memoryhub.core.contributions import parts_of
from memoryhub.core.errors import NotFound
from memoryhub.core.log.quarantine import outside_quarantine, quarantine_notes
from memoryhub.core.log.read import timeline_entry
from memoryhub.core.origin import current_origin
from memoryhub.core.paging import newest_first
from memoryhub.core.permissions import Act, allows
from memoryhub.core.schemas import Listing, Paging
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store
from memoryhub.core.stores.store_id import Scope
from sessions_app import schemas
from sessions_app.events.client import CONTEXT_COMPACTED
from sessions_app.git.worktree import WorkingTree, working_tree_at
from sessions_app.models import Commit, Iteration, Profile, Session, Turn
from sessions_app.present import commit_line, iteration_line, session_line, turn_line

_SESSION_FIELDS = [name for name in schemas.SessionView.model_fields if name != "metadata"]
_STORED_FIELDS = [name for name in schemas.CommitView.model_fields if name != "decisions"]


def view_session(session: Session) -> dict[str, Any]:
    """Return a session as JSON data."""
    return view_sessions([session])[0]


def view_sessions(sessions: Iterable[Session]) -> list[dict[str, Any]]:
    """Return sessions as JSON data."""
    listed = list(sessions)
    metadata = metadata_of([session.id for session in listed])
    views = []
    for session in listed:
        fields = {name: getattr(session, name) for name in _SESSION_FIELDS}
        view = schemas.SessionView(**fields, metadata=metadata.get(session.id, {}))
        views.append(view.model_dump(mode="json"))
    return views


def metadata_of(ids: list[int]) -> dict[int, dict[str, Any]]:
    """Return the metadata that sessions were begun with, by id. It is not in the read model, only in the log."""
    begun = log.events().at(ids).payloads()
    return {position: payload.get("metadata", {}) for position, payload in begun.items()}


def view_commit(commit: Commit) -> dict[str, Any]:
    """Return a commit as JSON data."""
    return view_commits([commit])[0]


def view_commits(commits: Iterable[Commit]) -> list[dict[str, Any]]:
    """Return commits as JSON data, with the parts that other apps contribute."""
    listed = list(commits)
    parts = parts_of("commit", [commit.id for commit in listed])
    views = []
    for commit in listed:
        fields = {name: getattr(commit, name) for name in _STORED_FIELDS}
        views.append(schemas.CommitView(**fields, **parts[commit.id]).model_dump(mode="json"))
    return views


def view_turn(turn: Turn) -> dict[str, Any]:
    """Return a turn as JSON data, without its token's hash."""
    return schemas.TurnView.model_validate(turn, from_attributes=True).model_dump(mode="json")


def view_iteration(iteration: Iteration) -> dict[str, Any]:
    """Return an iteration as JSON data."""
    return schemas.IterationView.model_validate(iteration, from_attributes=True).model_dump(mode="json")


def get_iteration(*, command: schemas.IterationGet) -> dict[str, Any]:
    """Return an iteration with its commits and its newest events, oldest first; by default the latest.

    Raises:
        NotFound: there is no such iteration, or none at all.
    """
    visible = outside_quarantine(Iteration.objects.all())
    latest: Iteration | None
    if command.id is None:
        latest = visible.order_by("id").last()
    else:
        latest = find_iteration(command.id)
    if latest is None:
        raise NotFound("there is no iteration yet; start one with iteration_start")
    window = log.events().window(after=latest.id - 1, up_to=latest.end_position)
    newest = list(window.order_by("-position")[: command.events])
    quarantined = quarantine_notes(newest)
    return {
        **view_iteration(latest),
        "commits": view_commits(outside_quarantine(Commit.objects.filter(iteration_id=latest.id)).order_by("id")),
        "events": [timeline_entry(event, quarantined.get(event.position)) for event in reversed(newest)],
        "left_out": window.count() - len(newest),
    }


def find_iteration(iteration_id: int) -> Iteration:
    """Return the iteration of that id.

    Raises:
        NotFound: there is none.
    """
    iteration: Iteration | None = Iteration.objects.filter(id=iteration_id).first()
    if iteration is None:
        raise NotFound(f"there is no iteration #{iteration_id} here", id=iteration_id)
    return iteration


def list_sessions(*, command: schemas.SessionList) -> Listing:
    """Return a page of sessions, newest first."""
    sessions = outside_quarantine(Session.objects.all())
    if command.status:
        sessions = sessions.filter(status=command.status)
    if command.compact:
        return newest_first(
            sessions.only("id", "session_id"), command, partial(_brief, name="session_id"), session_line
        )
    return newest_first(sessions, command, view_sessions, session_line)


def list_turns(*, command: schemas.TurnList) -> Listing:
    """Return a page of turns, newest first."""
    turns = outside_quarantine(Turn.objects.all())
    if command.session_id:
        turns = turns.filter(session_id=command.session_id)
    if command.status:
        turns = turns.filter(status=command.status)
    return newest_first(turns, command, lambda entries: list(map(view_turn, entries)), turn_line)


def list_iterations(*, command: schemas.IterationList) -> Listing:
    """Return a page of iterations, newest first."""
    iterations = outside_quarantine(Iteration.objects.all())
    if command.status:
        iterations = iterations.filter(status=command.status)
    return newest_first(iterations, command, lambda entries: list(map(view_iteration, entries)), iteration_line)


def list_commits(*, command: Paging) -> Listing:
    """Return a page of commits, the last recorded first."""
    commits = outside_quarantine(Commit.objects.all())
    if command.compact:
        return newest_first(commits.only("id", "sha"), command, partial(_brief, name="sha"), commit_line)
    return newest_first(commits, command, view_commits, commit_line)


def _brief(entries: Iterable[Any], *, name: str) -> list[dict[str, Any]]:
    return [{"id": entry.id, name: getattr(entry, name)} for entry in entries]


def profile() -> schemas.ProfileView:
    """Return the profile of the current store."""
    fields = Profile.objects.values(*schemas.ProfileView.model_fields).first() or {}
    return schemas.ProfileView(**fields)


@rows.InSteps
def org_of_project() -> rows.Steps[str | None]:
    """Return the id of the current project's organisation, or None."""
    # Raw: each search and pack asks
    (orgs,) = yield [("SELECT org FROM sessions_app_profile", ())]
    return orgs[0][0] if orgs else None


def context_begins(session_id: str) -> int:
    """Return the position of a session's last compaction, or 0; what it was given before is not in its context."""
    compactions = log.events().of_session(session_id).of_type(CONTEXT_COMPACTED)
    return compactions.values_list("position", flat=True).last() or 0


class SessionEvent(NamedTuple):
    """What a session did or said: an event with its payload as JSON data."""

    position: int
    type: str
    payload: dict[str, Any]
    session_id: str = ""
    occurred_at: str = ""

    @property
    def happened_at(self) -> str:
        """When it happened, which is earlier than when it was imported."""
        return str(self.payload.get("written_at") or self.occurred_at)

    @property
    def has_failed(self) -> bool:
        """Whether it is a command with an exit code that is not 0."""
        return bool(self.payload.get("exit_code"))


# Payloads can be of 100,000 characters
_IN_MEMORY = 100


def read_events(events: log.EventQuerySet, most: int | None = None) -> Iterator[SessionEvent]:
    """Yield the first events of a query that are neither erased nor quarantined, with few of them in memory."""
    visible = outside_quarantine(events.readable(), "position")
    columns = visible.values_list("position", "event_type", "payload_json", "session_id", "occurred_at")[:most]
    for position, name, payload, session_id, occurred_at in columns.iterator(_IN_MEMORY):
        yield SessionEvent(position, name, json.loads(payload or "{}"), session_id, occurred_at)


@rows.InSteps
def root_of_project() -> rows.Steps[str]:
    """Return the folder of the current project's repository, or ""."""
    # Raw: each pack asks
    (roots,) = yield [("SELECT root_path FROM sessions_app_profile", ())]
    return roots[0][0] if roots else ""


def is_readable(folder: Path) -> bool:
    """Return whether the caller may have git read a folder of this machine: others than administrators the project's.

    They may name a folder of their own machine, and on this one only mean the project's.
    """
    if allows(Act.ADMINISTER):
        return True
    root = root_of_project()
    return bool(root) and resolved(folder).is_relative_to(resolved(Path(root)))


@rows.InSteps
def caller_tree() -> rows.Steps[WorkingTree | None]:
    """Return the working tree in which the caller works: of its folder, its session's, or the project's.

    None if that is no folder here, such as one of another machine, or is outside git.
    """
    directory = current_folder().directory
    if directory:
        return working_tree_at(Path(directory))
    root, directory = yield from rows.side_by_side(
        root_of_project.steps(), _directory_of_session(current_origin().session_id)
    )
    if directory and not (directory.startswith("/") and is_readable(Path(directory))):
        return None
    directory = directory or root or _bound_folder()
    return working_tree_at(Path(directory)) if directory.startswith("/") else None


# For callers without a folder, such as of REST: where hooks and MCP servers on this machine began the project
def _bound_folder() -> str:
    store = current_store()
    if store.scope is not Scope.PROJECT:
        return ""
    return next(map(str, bound_folders(store.name)), "")


# Raw: each search asks
def _directory_of_session(session_id: str) -> rows.Steps[str]:
    if not session_id:
        return ""
    sql = "SELECT directory FROM sessions_app_session WHERE session_id = %s"
    (directories,) = yield [(sql, [session_id])]
    return directories[0][0] if directories else ""
