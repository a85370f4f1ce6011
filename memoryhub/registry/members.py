"""The members of projects and organisations: who has which role where (decision 71)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.contrib.auth.models import User
from django.db import transaction
from pydantic import Field

from memoryhub.core import clock
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.origin import current_origin
from memoryhub.core.permissions import EVERYTHING, LIMITED_ROLES, Act, allows, demand, reaches, use_grant
from memoryhub.core.schemas import Command
from memoryhub.core.stores.store import (
    Scope,
    StoreId,
    list_orgs,
    list_projects,
    org_store,
    project_store,
    unknown_store,
)
from memoryhub.models import Membership, Subject
from memoryhub.registry.access_history import note_change
from memoryhub.registry.people import find_person, role_of
from memoryhub.registry.rights import org_of

MemberRole = Literal["viewer", "reviewer", "owner"]


class MemberSet(Command):
    """Give a person a role in a project, or in an organisation and all its projects."""

    role: MemberRole = Field(description="viewer: reads; reviewer: also writes and reviews; owner: everything there")


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    role: str
    # "": given here; else the organisation, or "the hub", whose role counts here too
    through: str
    is_active: bool
    given_at: datetime | None = None
    given_by: str = ""


def list_members(store: StoreId) -> list[Member]:
    """Return everyone who may see a place, by name, those that were given a role there first.

    Raises:
        NotFound: there is no such place, or the caller may not see it.
        Forbidden: the caller is neither an owner there nor manages people.
    """
    _require_manager(store)
    places = {store.place: ""}
    if store.scope is Scope.PROJECT and (org := org_of(store.name)):
        places[f"org:{org}"] = org
    users = {user.username: user for user in User.objects.prefetch_related("groups")}
    members = []
    for row in Membership.objects.filter(place__in=places):
        if user := users.get(row.username):
            is_active, through = user.is_active, places[row.place]
            members.append(Member(row.username, row.role, through, is_active, row.given_at, row.given_by))
    for name, user in users.items():
        role = role_of(user)
        if role and role not in LIMITED_ROLES:
            members.append(Member(name, role, "the hub", user.is_active))
    return sorted(members, key=lambda member: (bool(member.through), member.name, member.through))


def set_member(*, store: StoreId, name: str, command: MemberSet) -> Member:
    """Give a person a role in a place, effective from their next request; the same role again changes nothing.

    Raises:
        NotFound: there is no such person or place, or the caller may not see it.
        Forbidden: the caller is neither an owner there nor manages people.
        Invalid: the place is the global scope, which has no members.
    """
    _require_manager(store)
    user = find_person(name)
    new = {"role": command.role, "given_at": clock.now(), "given_by": current_origin().actor}
    with transaction.atomic():
        row = Membership.objects.select_for_update().filter(username=name, place=store.place).first()
        if row is None or row.role != command.role:
            what = f"changed {name} from {row.role} to" if row else f"added {name} as"
            row = Membership.objects.update_or_create(username=name, place=store.place, defaults=new)[0]
            note_change(Subject.MEMBER, store.place, f"{what} {command.role}")
    return Member(name, row.role, "", user.is_active, row.given_at, row.given_by)


def remove_member(*, store: StoreId, name: str) -> None:
    """Remove a person's role in a place, effective from their next request.

    Raises:
        NotFound: there is no such place, or the person was given no role in it.
        Forbidden: the caller is neither an owner there nor manages people.
    """
    _require_manager(store)
    with transaction.atomic():
        if not Membership.objects.filter(username=name, place=store.place).delete()[0]:
            raise NotFound(f"{name[:64]!r} was given no role in this {_KINDS[store.scope]}; see its members")
        note_change(Subject.MEMBER, store.place, f"removed {name}")


def described(member: Member) -> str:
    """Return a line such as ``ann  reviewer  through acme``."""
    source = f"through {member.through}" if member.through else f"given by {member.given_by}"
    line = f"{member.name}  {member.role}  {source}"
    return line if member.is_active else f"{line}; deactivated"


def memberships_of(names: Iterable[str]) -> dict[str, list[Membership]]:
    """Return the memberships of people by name; for those who manage people.

    Raises:
        Forbidden: the caller doesn't manage people.
    """
    demand(Act.ADMINISTER)
    memberships: dict[str, list[Membership]] = {}
    for row in Membership.objects.filter(username__in=list(names)).order_by("place"):
        memberships.setdefault(row.username, []).append(row)
    return memberships


def places_to_manage() -> list[StoreId]:
    """Return the projects and organisations that get members, also those that the caller can't read.

    Raises:
        Forbidden: the caller doesn't manage people.
    """
    demand(Act.ADMINISTER)
    with use_grant(EVERYTHING):
        return [*map(org_store, list_orgs()), *map(project_store, list_projects())]


_KINDS = {Scope.PROJECT: "project", Scope.ORG: "organisation"}


def _require_manager(store: StoreId) -> None:
    if store.scope not in _KINDS:
        raise Invalid("the global scope has no members: everyone with a role in the hub sees it")
    # Those who manage people need not be members, so they see which places there are, but not what is in them.
    manages = allows(Act.ADMINISTER)
    if not stores.exists(store) or not (manages or reaches(store.place)):
        raise unknown_store(store)
    if not manages:
        demand(Act.GOVERN, to="manage members", place=store.place)
