"""Create people, give them a role, and deactivate them. There is always an active owner."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Q, QuerySet
from pydantic import AfterValidator, Field

from memoryhub.core.errors import ConflictError, Invalid, NotFound
from memoryhub.core.permissions import HUB, LIMITED_ROLES, PERMISSIONS, ROLES, Act, allows, demand
from memoryhub.core.schemas import Command
from memoryhub.core.validation import command_from
from memoryhub.models import SignInLink, Subject
from memoryhub.registry.access_history import note_change
from memoryhub.registry.rights import require_rights_of
from memoryhub.registry.tokens import plain_name

OWNER = "owner"


def sync_groups(using: str = "default", **_: Any) -> None:
    """Create the groups with their permissions; runs after each migration of hub.db."""
    if using != "default":
        return
    permissions = Permission.objects.filter(content_type__app_label="memoryhub")
    by_codename = {permission.codename: permission for permission in permissions}
    for role, acts in ROLES.items():
        group = Group.objects.get_or_create(name=role)[0]
        group.permissions.set([by_codename[PERMISSIONS[act].partition(".")[2]] for act in acts])


def role_of(user: User) -> str:
    """Return the highest role of a user, or "". Uses prefetched groups."""
    if user.is_superuser:
        return OWNER
    groups = {group.name for group in user.groups.all()}
    return next((role for role in reversed(ROLES) if role in groups), "")


def give_role(user: User, role: str) -> None:
    user.is_superuser = user.is_superuser and role == OWNER
    user.is_staff = True
    user.save(update_fields=["is_superuser", "is_staff"])
    user.groups.remove(*Group.objects.filter(name__in=ROLES))
    user.groups.add(Group.objects.get(name=role))


def active_owners() -> QuerySet[User]:
    """Return the owners who may sign in, oldest first."""
    owners = User.objects.filter(Q(is_superuser=True) | Q(groups__name=OWNER), is_active=True)
    return owners.distinct().order_by("id")


Role = Literal["member", "administrator", "viewer", "reviewer", "owner"]
# Actors in events that are not people
_RESERVED = frozenset({"token", "unknown", "memory-hub"})


def _person_name(name: str) -> str:
    plain_name(name)
    if name in _RESERVED:
        raise ValueError("this name is reserved for other actors; choose another")
    return name


PersonName = Annotated[str, AfterValidator(_person_name)]


class PersonAdd(Command):
    """Add a person."""

    name: PersonName = Field(description="1 to 64 of a-z, 0-9, '.', '_', '-'; shown as the actor in events")
    role: Role = Field(
        description="member: sees what they are a member of; administrator: also manages people; viewer: sees all; "
        "reviewer: also writes and reviews; owner: everything"
    )


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    role: str
    signed_in_at: datetime | None
    is_active: bool
    # The last owner can't be demoted or deactivated.
    is_last_owner: bool
    # Whether the caller may change their role, sign them in or deactivate them
    is_managed: bool


def list_people() -> list[Person]:
    """Return all people by name, active ones first."""
    last = _last_owner()
    users = User.objects.prefetch_related("groups").order_by("-is_active", "username")
    people = []
    for user in users:
        role = role_of(user)
        is_last = user.pk == last
        people.append(Person(user.username, role, user.last_login, user.is_active, is_last, _manages(role)))
    return people


def add_person(*, command: PersonAdd) -> User:
    _require_manager_of(command.role)
    with transaction.atomic():
        if User.objects.filter(username=command.name).exists():
            raise ConflictError(
                f"there is a person {command.name!r} already; change their role, or choose another name"
            )
        user = User.objects.create_user(command.name)
        give_role(user, command.role)
        note_change(Subject.PERSON, command.name, f"added as {command.role}")
    return user


def ensure_person(*, name: str, role: str | None) -> None:
    """Add a person who is not there yet, or give one who is there another role.

    Raises:
        Invalid: they are not there, and there is no role for them.
        ConflictError: they are the last active owner.
    """
    people = {person.name: person for person in list_people()}
    if name in people and role not in (None, people[name].role):
        change_role(name=name, role=str(role))
    elif name not in people and role is None:
        raise Invalid(f"there is no person {name[:64]!r} yet; add --role to create them: {', '.join(ROLES)}")
    elif name not in people:
        add_person(command=command_from(PersonAdd, {"name": name, "role": role}))


def change_role(*, name: str, role: str) -> None:
    """Give a person another role, effective from their next request.

    Raises:
        ConflictError: they are the last active owner.
    """
    if role not in ROLES:
        raise Invalid(f"role must be one of {', '.join(ROLES)}, not {role[:64]!r}")
    with transaction.atomic():
        user = find_person(name)
        before = role_of(user)
        _require_manager_of(before, role)
        if role != OWNER:
            _keep_an_owner(user, "get another role")
        give_role(user, role)
        if role != before:
            note_change(Subject.PERSON, name, f"role changed from {before or 'none'} to {role}")


def deactivate_person(*, name: str) -> None:
    """End a person's sessions and sign-in links, and prevent new ones.

    Raises:
        ConflictError: they are the last active owner.
    """
    with transaction.atomic():
        user = find_person(name)
        _require_manager_of(role_of(user))
        _keep_an_owner(user, "be deactivated")
        SignInLink.objects.filter(username=name).delete()
        if User.objects.filter(pk=user.pk, is_active=True).update(is_active=False):
            note_change(Subject.PERSON, name, "deactivated")


def activate_person(*, name: str) -> None:
    """Let a deactivated person sign in again, with their previous role."""
    with transaction.atomic():
        user = find_person(name)
        _require_manager_of(role_of(user))
        if User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
            note_change(Subject.PERSON, name, "activated again")


def require_manager_of(user: User) -> None:
    """Raise Forbidden unless the caller may sign this person in (decision 71).

    Those who only manage people can't sign in as someone with a role in the whole hub, or with one that they lack.
    """
    _require_manager_of(role_of(user))
    if user.is_active:
        require_rights_of(user.username)


def _manages(role: str) -> bool:
    return not role or role in LIMITED_ROLES or allows(Act.GOVERN, place=HUB)


def _require_manager_of(*roles: str) -> None:
    if not all(map(_manages, roles)):
        demand(Act.GOVERN, to="change people who have a role in the whole hub", place=HUB)


def find_person(name: str) -> User:
    user = User.objects.filter(username=name).first()
    if user is None:
        raise NotFound(f"there is no person {name[:64]!r} in this hub; see the People page")
    return user


def _keep_an_owner(user: User, what: str) -> None:
    if user.pk == _last_owner():
        raise ConflictError(
            f"{user.username} is the last active owner and can't {what}; make another person owner first"
        )


def _last_owner() -> int | None:
    owners = list(active_owners().values_list("pk", flat=True)[:2])
    return owners[0] if len(owners) == 1 else None
