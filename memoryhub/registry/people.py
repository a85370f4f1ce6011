"""The people of this hub: made, given a role, let in by a link, and deactivated. There is always an active owner."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Q, QuerySet
from pydantic import AfterValidator, Field

from memoryhub.core.errors import Conflict, Invalid, NotFound
from memoryhub.core.permissions import PERMISSIONS, ROLES
from memoryhub.core.schemas import Command
from memoryhub.models import SignInLink, Subject
from memoryhub.registry.access_history import note_change
from memoryhub.registry.tokens import plain_name

OWNER = "owner"


def sync_groups(using: str = "default", **_: Any) -> None:
    """Make the groups and give them their permissions; runs after each migration of hub.db."""
    if using != "default":
        return
    known = {each.codename: each for each in Permission.objects.filter(content_type__app_label="memoryhub")}
    for role, acts in ROLES.items():
        group = Group.objects.get_or_create(name=role)[0]
        group.permissions.set([known[PERMISSIONS[act].partition(".")[2]] for act in acts])


def role_of(user: User) -> str:
    """Return the greatest role that a user has; "" for none. Reads no more where her groups are prefetched."""
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
    """Return the owners who may sign in, the first one first."""
    owners = User.objects.filter(Q(is_superuser=True) | Q(groups__name=OWNER), is_active=True)
    return owners.distinct().order_by("id")


Role = Literal["viewer", "reviewer", "owner"]
_TAKEN = frozenset({"token", "unknown", "memory-hub"})
"""What events call those who act and are no people."""


def _of_a_person(name: str) -> str:
    plain_name(name)
    if name in _TAKEN:
        raise ValueError("events call others by this name; choose another")
    return name


PersonName = Annotated[str, AfterValidator(_of_a_person)]


class PersonAdd(Command):
    """Let a person in."""

    name: PersonName = Field(description="1 to 64 of a-z, 0-9, '.', '_', '-'; events name her by it")
    role: Role = Field(description="viewer: sees all; reviewer: writes and reviews; owner: all")


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    role: str
    signed_in_at: datetime | None
    is_active: bool
    is_last_owner: bool
    """She can be neither demoted nor deactivated."""


def list_people() -> list[Person]:
    """Return everyone, those who may come in first, in order of their names."""
    last = _last_owner()
    users = User.objects.prefetch_related("groups").order_by("-is_active", "username")
    return [Person(user.username, role_of(user), user.last_login, user.is_active, user.pk == last) for user in users]


def add_person(*, command: PersonAdd) -> User:
    """Make a person, without a password.

    Raises:
        Conflict: there is one of that name.
    """
    with transaction.atomic():
        if User.objects.filter(username=command.name).exists():
            raise Conflict(f"there is a person {command.name!r} already; change her role, or choose another name")
        user = User.objects.create_user(command.name)
        give_role(user, command.role)
        note_change(Subject.PERSON, command.name, f"made, as {command.role}")
    return user


def change_role(*, name: str, role: str) -> None:
    """Give a person another role; it counts from her next click.

    Raises:
        NotFound: there is no such person.
        Invalid: there is no such role.
        Conflict: she is the last active owner.
    """
    if role not in ROLES:
        raise Invalid(f"role must be one of {', '.join(ROLES)}, not {role[:64]!r}")
    with transaction.atomic():
        user = find_person(name)
        before = role_of(user)
        if role != OWNER:
            _keep_an_owner(user, "get another role")
        give_role(user, role)
        if role != before:
            note_change(Subject.PERSON, name, f"made {role}, before {before or 'without a role'}")


def deactivate_person(*, name: str) -> None:
    """End a person's sessions and links, and let her in no more until she is activated again.

    Raises:
        NotFound: there is no such person.
        Conflict: she is the last active owner.
    """
    with transaction.atomic():
        user = find_person(name)
        _keep_an_owner(user, "be deactivated")
        SignInLink.objects.filter(username=name).delete()
        if User.objects.filter(pk=user.pk, is_active=True).update(is_active=False):
            note_change(Subject.PERSON, name, "deactivated")


def activate_person(*, name: str) -> None:
    """Let a deactivated person in again, with the role that she had.

    Raises:
        NotFound: there is no such person.
    """
    with transaction.atomic():
        if User.objects.filter(pk=find_person(name).pk, is_active=False).update(is_active=True):
            note_change(Subject.PERSON, name, "activated again")


def find_person(name: str) -> User:
    """Return the person of that name.

    Raises:
        NotFound: there is none.
    """
    found = User.objects.filter(username=name).first()
    if found is None:
        raise NotFound(f"there is no person {name[:64]!r} in this hub; the page People lists them")
    return found


def _keep_an_owner(user: User, what: str) -> None:
    if user.pk == _last_owner():
        raise Conflict(f"{user.username} is the last active owner and can't {what}; make another person owner first")


def _last_owner() -> int | None:
    owners = list(active_owners().values_list("pk", flat=True)[:2])
    return owners[0] if len(owners) == 1 else None
