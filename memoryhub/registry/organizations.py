"""Create, describe and list organisations. Needs only the stores, not hub.db.

From inside a project's store, as in an MCP server, any organisation can be created and its card read, but only the
project's own can be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from memoryhub.core.permissions import TO_MAKE_PLACES, Act, demand
from memoryhub.core.schemas import Listing, Paging, self_evident
from memoryhub.core.stores.store import StoreId, org_store, use_store
from memoryhub.core.stores.store import list_orgs as org_ids
from memoryhub.registry.projects import projects_by_org, projects_of
from memoryhub.registry.store_cards import (
    IfTaken,
    Problem,
    Redacted,
    ShortDescription,
    StoreOverview,
    WithIdFromName,
    create_described,
    name_fields,
    org_line,
    overview_fields,
    page_of_cards,
    place_to_describe,
    read_card,
    store_here,
)
from sessions_app.events import Slug
from sessions_app.schemas import OrgDescribe
from sessions_app.selectors import org_of_project, profile
from sessions_app.services.profile import describe


class OrgCreate(WithIdFromName, OrgDescribe):
    org_id: Slug = Field(alias="id", description="1-64 of a-z 0-9 . _ -")
    if_exists: IfTaken = Field(
        IfTaken.ERROR, description="update: describe the existing one", json_schema_extra=self_evident
    )


class OrgCard(BaseModel):
    """What every project can see of an organisation."""

    org_id: str
    name: str = ""
    description: ShortDescription = ""
    problem: Problem = ""


class OrgOverview(StoreOverview, OrgCard):
    projects: list[str] = Field(default_factory=list, description="ids of its projects")


class OrgDetails(OrgOverview):
    description: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    described_at: datetime | None = None
    redacted: Redacted = Field(default_factory=list)


def create_org(*, command: OrgCreate) -> OrgDetails:
    """Create an organisation's store and describe it, or update an existing one.

    Raises:
        ConflictError: the id exists, and ``if_exists`` is ``error``.
        Forbidden: it exists, and the caller works in a project of another organisation.
    """
    store = org_store(command.org_id)
    demand(Act.GOVERN, to=TO_MAKE_PLACES, place=place_to_describe(store))
    refusal = ""
    if store_here() is not None and org_of_project() != store.name:
        refusal = f"organisation {store.name!r} can be described only from its own projects; this is not one of them"
    redacted = create_described(store=store, command=command, if_exists=command.if_exists, refusal=refusal)
    return _details(store, redacted)


def describe_org(*, org_id: str, command: OrgDescribe) -> OrgDetails:
    """Change an organisation's description; omitted fields stay unchanged."""
    with use_store(org_store(org_id)):
        redacted = describe(command=command).redacted
    return _details(org_store(org_id), redacted)


def list_orgs(*, command: Paging) -> Listing:
    def read(org_id: str) -> OrgCard:
        return read_card(org_store(org_id), OrgCard, lambda: name_fields(profile()), org_id=org_id)

    return page_of_cards(org_ids(), command, read, id_field="org_id", line=org_line)


def get_org(*, org_id: str) -> OrgDetails:
    return _details(org_store(org_id))


def overview_reader() -> Callable[[str], OrgOverview]:
    """Return a function from an id to an overview; it looks up the members of all organisations only once."""
    members = projects_by_org()

    def read_fields() -> dict[str, Any]:
        return {**name_fields(profile()), **overview_fields()}

    def read(org_id: str) -> OrgOverview:
        projects = members.get(org_id, [])
        return read_card(org_store(org_id), OrgOverview, read_fields, org_id=org_id, projects=projects)

    return read


def _details(store: StoreId, redacted: tuple[str, ...] = ()) -> OrgDetails:
    with use_store(store):
        described = profile()
        fields = {**described.model_dump(include={"name", "description", "metadata", "tags"}), **overview_fields()}
    return OrgDetails(
        org_id=store.name,
        **fields,
        projects=projects_of(store.name),
        described_at=described.updated_at,
        redacted=list(redacted),
    )
