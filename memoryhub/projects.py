"""The projects of this hub: which there are and how each one stands."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from memories.models import Memory
from memoryhub.core import clock, log
from memoryhub.core.errors import Conflict, HubError
from memoryhub.core.models import RawEvent
from memoryhub.core.schemas import Command
from memoryhub.core.stores import SLUG, list_projects, project_store, use_store
from memoryhub.models import StoreCheck


class ProjectCreate(Command):
    """Make a project."""

    project_id: str = Field(pattern=f"^{SLUG.pattern}$", description="1 to 64 of a-z, 0-9, '.', '_', '-'")


class ProjectSummary(BaseModel):
    """How a project stands. ``problem`` says why its store could not be read; then the counts are 0."""

    project_id: str
    events: int = 0
    memories: int = 0
    last_activity: datetime | None = None
    chain_ok: bool | None = Field(None, description="null: never checked")
    chain_finding: str = ""
    chain_checked_at: datetime | None = None
    problem: str = ""


class ProjectList(BaseModel):
    """Every project of the hub, in order of their ids."""

    results: list[ProjectSummary]


def summarize_projects() -> list[ProjectSummary]:
    """Return how every project stands, in order of their ids; a store that cannot be read does not hide the others."""
    checks = {check.store: check for check in StoreCheck.objects.all()}
    return [_summary(project, checks.get(project_store(project).alias)) for project in list_projects()]


def summarize_project(*, project_id: str) -> ProjectSummary:
    """Return how one project stands.

    Raises:
        NotFound: there is none of that id.
    """
    store = project_store(project_id)
    check = StoreCheck.objects.filter(store=store.alias).first()
    with use_store(store):
        return ProjectSummary(project_id=project_id, **_checked(check), **_counts())


def create_project(*, command: ProjectCreate) -> ProjectSummary:
    """Make the store of a new project.

    Raises:
        Conflict: there is one of that id.
    """
    if command.project_id in list_projects():
        raise Conflict(f"project {command.project_id!r} exists already; use it, or choose another id")
    with use_store(project_store(command.project_id), create=True):
        return ProjectSummary(project_id=command.project_id)


def _summary(project: str, check: StoreCheck | None) -> ProjectSummary:
    known = _checked(check)
    try:
        with use_store(project_store(project)):
            return ProjectSummary(project_id=project, **known, **_counts())
    except HubError as error:
        return ProjectSummary(project_id=project, **known, problem=error.message)


def _checked(check: StoreCheck | None) -> dict[str, Any]:
    if check is None:
        return {}
    return {"chain_ok": check.ok, "chain_finding": check.finding, "chain_checked_at": check.checked_at}


def _counts() -> dict[str, Any]:
    position, _ = log.head()
    last = RawEvent.objects.filter(position=position).values_list("occurred_at", flat=True).first()
    return {
        "events": position,
        "memories": Memory.objects.live().count(),
        "last_activity": clock.from_text(last) if last else None,
    }
