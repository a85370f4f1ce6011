"""The projects of this hub: made, described, listed and told about. Needs the stores alone, not hub.db.

Inside a project's store, which is where an MCP server works, another project shows no more than its card, and can be
made but not changed.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memoryhub.config.identity import slugify
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Forbidden, Invalid
from memoryhub.core.permissions import TO_MAKE_PLACES, Act, demand
from memoryhub.core.schemas import Command, Listing, Paging, self_evident
from memoryhub.core.stores.store import Scope, StoreId, current_store, project_store, use_store
from memoryhub.core.stores.store import list_projects as project_ids
from memoryhub.registry.present import project_line
from memoryhub.registry.store_cards import (
    Problem,
    Redacted,
    ShortDescription,
    StoreOverview,
    apart_from_here,
    occurred_at,
    overview_fields,
    page_of_cards,
    read_card,
    shortened,
    store_here,
)
from sessions_app.events.work import PROJECT_DESCRIBED, Slug
from sessions_app.models import Commit, Session
from sessions_app.schemas import ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe, draft_description


class IfTaken(StrEnum):
    """What to do when there is a project or an organisation of that id."""

    ERROR = "error"
    UPDATE = "update"


def id_from_name(given: Any, field: str) -> Any:
    """Give what is to be made the id that its name makes, where it comes without one; else leave it as it is."""
    if not isinstance(given, dict) or {"id", field} & set(given) or not isinstance(given.get("name"), str):
        return given
    slug = slugify(given["name"])
    return {**given, "id": slug} if slug else given


class ProjectCreate(ProjectDescribe):
    model_config = ConfigDict(populate_by_name=True)

    project_id: Slug = Field(alias="id", description="1-64 of a-z 0-9 . _ -")
    if_exists: IfTaken = Field(
        IfTaken.ERROR, description="update: describe the existing one", json_schema_extra=self_evident
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return id_from_name(given, "project_id")


class ProjectList(Paging):
    org_id: Slug | None = Field(None, description="only of this organisation", json_schema_extra=self_evident)


class ProjectGet(Command):
    """Get one project."""

    model_config = ConfigDict(populate_by_name=True)

    project_id: Slug | None = Field(None, alias="id", description="default: this one")


class ProjectCard(BaseModel):
    """What a project shows of itself to every other."""

    project_id: str
    name: str = ""
    description: ShortDescription = ""
    org_id: str | None = None
    problem: Problem = ""


class ProjectDetails(StoreOverview, ProjectCard):
    description: str = ""
    root_path: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    sessions: int = 0
    commits: int = 0
    created_at: datetime | None = Field(None, description="of its first event")
    described_at: datetime | None = None
    redacted: Redacted = Field(default_factory=list)


def create_project(*, command: ProjectCreate) -> ProjectCard:
    """Make the store of a new project, described; or describe the one that is there.

    Returns:
        ``ProjectDetails``; where the caller works in another project, only the card.

    Raises:
        Conflict: there is one of that id, and ``if_exists`` is ``error``.
        Forbidden: the caller works in another project than the one to be described.
        NotFound: there is no such organisation.
    """
    demand(Act.GOVERN, to=TO_MAKE_PLACES)
    store = project_store(command.project_id)
    said = command.model_dump(exclude_unset=True, exclude={"project_id", "if_exists"})
    description = ProjectDescribe(**said)
    draft_description(command=description, scope=Scope.PROJECT)  # before anything is made
    if store.path.exists():
        _check_existing(store, command)
    with apart_from_here(store), use_store(store, create=True):
        redacted = describe(command=description).redacted if said else ()
    return _shown(store, redacted)


def describe_project(*, project_id: str, command: ProjectDescribe) -> ProjectDetails:
    """Change what a project says of itself; what is left out stays.

    Raises:
        NotFound: there is no such project, or no such organisation.
    """
    with use_store(project_store(project_id)):
        return ProjectDetails(redacted=list(describe(command=command).redacted), **details_fields())


def list_projects(*, command: ProjectList) -> Listing:
    ids = project_ids() if command.org_id is None else projects_of(command.org_id)
    return page_of_cards(ids, command, project_card, id_field="project_id", line=project_line)


def get_project(*, command: ProjectGet) -> ProjectCard:
    """Return all about the project that the caller works in; of another one, its card.

    Raises:
        NotFound: there is no such project.
        Invalid: none is named, and the caller works in none.
    """
    here = store_here()
    store = project_store(command.project_id) if command.project_id else here
    if store is None:
        raise Invalid("no project is current here; name one in id")
    return _shown(store)


def projects_of(org_id: str) -> list[str]:
    return projects_by_org().get(org_id, [])


def projects_by_org() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in project_ids():
        org = project_card(each).org_id
        if org is not None:
            found.setdefault(org, []).append(each)
    return found


def project_card(project_id: str) -> ProjectCard:
    return read_card(project_store(project_id), ProjectCard, card_fields, project_id=project_id)


def card_fields() -> dict[str, Any]:
    known = profile()
    return {"name": known.name, "description": shortened(known.description), "org_id": known.org}


def details_fields() -> dict[str, Any]:
    known = profile()
    return {
        "project_id": current_store().name,
        **card_fields(),
        **known.model_dump(include={"description", "root_path", "metadata", "tags"}),
        **overview_fields(),
        "sessions": Session.objects.count(),
        "commits": Commit.objects.count(),
        "created_at": occurred_at(1),
        "described_at": known.updated_at,
    }


def _shown(store: StoreId, redacted: tuple[str, ...] = ()) -> ProjectCard:
    told_all = store_here() in (None, store)
    with use_store(store):
        if told_all:
            return ProjectDetails(**details_fields(), redacted=list(redacted))
        return ProjectCard(project_id=store.name, **card_fields())


def _check_existing(store: StoreId, command: ProjectCreate) -> None:
    """Let only pass what describes the project on purpose, or for the first time from inside it, or once more."""
    here = store_here()
    with use_store(store):
        if log.find_by_key(command.idempotency_key, PROJECT_DESCRIBED):
            return
        undescribed = profile().updated_at is None
    if command.if_exists is IfTaken.ERROR and not (here == store and undescribed):
        raise Conflict(
            f"project {store.name!r} exists already; send if_exists=update to describe it, or choose another id"
        )
    if here not in (None, store):
        raise Forbidden(
            f"project {store.name!r} is described from inside it only; this server is bound to {here.name!r}"
        )
