"""Routes for the members of projects and organisations."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status
from pydantic import BaseModel, Field

from memoryhub.core.rest import problems
from memoryhub.core.schemas import Moment
from memoryhub.core.stores.store import org_store, project_store
from memoryhub.registry import members
from memoryhub.registry.members import MemberSet

router = Router()


class MemberFacts(BaseModel):
    """A person who may see a place."""

    name: str
    role: str
    through: str = Field(description="empty: the role was given here; else the organisation, or 'the hub'")
    is_active: bool
    given_at: Moment | None = None
    given_by: str = ""


class MemberList(BaseModel):
    """People by name, those that were given a role here first."""

    results: list[MemberFacts]


def _listed(found: list[members.Member]) -> dict[str, Any]:
    return {"results": [members.facts(member) for member in found]}


@router.get("projects/{project_id}/members", response=MemberList, tags=["members"], summary="List a project's members")
def list_project_members(request: HttpRequest, project_id: str) -> Any:
    """Also those whose role in its organisation or in the hub counts here. For owners, and those who manage people."""
    return _listed(members.list_members(project_store(project_id)))


@router.put(
    "projects/{project_id}/members/{person}",
    response={200: MemberFacts, **problems(404)},
    tags=["members"],
    summary="Give a person a role in a project",
)
def set_project_member(request: HttpRequest, project_id: str, person: str, command: MemberSet) -> Any:
    """Takes effect with their next request."""
    return members.facts(members.set_member(store=project_store(project_id), name=person, command=command))


@router.delete(
    "projects/{project_id}/members/{person}",
    response={204: None, **problems(404)},
    tags=["members"],
    summary="Remove a member of a project",
)
def remove_project_member(request: HttpRequest, project_id: str, person: str) -> Any:
    """Takes effect with their next request."""
    members.remove_member(store=project_store(project_id), name=person)
    return Status(204, None)


@router.get("orgs/{org_id}/members", response=MemberList, tags=["members"], summary="List an organisation's members")
def list_org_members(request: HttpRequest, org_id: str) -> Any:
    """Also those whose role in the hub counts here. For owners, and those who manage people."""
    return _listed(members.list_members(org_store(org_id)))


@router.put(
    "orgs/{org_id}/members/{person}",
    response={200: MemberFacts, **problems(404)},
    tags=["members"],
    summary="Give a person a role in an organisation",
)
def set_org_member(request: HttpRequest, org_id: str, person: str, command: MemberSet) -> Any:
    """It holds in all projects of the organisation, and takes effect with their next request."""
    return members.facts(members.set_member(store=org_store(org_id), name=person, command=command))


@router.delete(
    "orgs/{org_id}/members/{person}",
    response={204: None, **problems(404)},
    tags=["members"],
    summary="Remove a member of an organisation",
)
def remove_org_member(request: HttpRequest, org_id: str, person: str) -> Any:
    """Takes effect with their next request."""
    members.remove_member(store=org_store(org_id), name=person)
    return Status(204, None)
