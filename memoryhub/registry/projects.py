"""The projects of this hub: made, described, listed and told about. Needs the stores alone, not hub.db.

Inside a project's store, which is where an MCP server works, another project shows no more than its card, and can be
made but not changed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memoryhub.core.errors import Invalid
from memoryhub.core.permissions import TO_MAKE_PLACES, Act, demand
from memoryhub.core.schemas import Command, Listing, Paging, self_evident
from memoryhub.core.stores.store import StoreId, current_store, project_store, use_store
from memoryhub.core.stores.store import list_projects as project_ids
from memoryhub.registry.present import project_line
from memoryhub.registry.store_cards import (
    IfTaken,
    Problem,
    Redacted,
    ShortDescription,
    StoreOverview,
    WithIdFromName,
    create_described,
    name_fields,
    occurred_at,
    overview_fields,
    page_of_cards,
    read_card,
    store_here,
)
from sessions_app.events.work import Slug
from sessions_app.models import Commit, Session
from sessions_app.schemas import ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe


class ProjectCreate(WithIdFromName, ProjectDescribe):
    project_id: Slug = Field(alias="id", description="1-64 of a-z 0-9 . _ -")
    if_exists: IfTaken = Field(
        IfTaken.ERROR, description="update: describe the existing one", json_schema_extra=self_evident
    )


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
    here = store_here()
    refusal = ""
    if here not in (None, store):
        refusal = f"project {store.name!r} is described from inside it only; this server is bound to {here.name!r}"
    redacted = create_described(store=store, command=command, if_exists=command.if_exists, refusal=refusal)
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
    return {**name_fields(known), "org_id": known.org}


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
