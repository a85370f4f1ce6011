"""Roles: three of Django's groups, each with the permissions of its acts. A superuser is an owner without a group."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db.models import Q, QuerySet

from memoryhub.core.permissions import PERMISSIONS, ROLES

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
    """Make it her one role."""
    user.is_superuser = user.is_superuser and role == OWNER
    user.is_staff = True
    user.save(update_fields=["is_superuser", "is_staff"])
    user.groups.remove(*Group.objects.filter(name__in=ROLES))
    user.groups.add(Group.objects.get(name=role))


def active_owners() -> QuerySet[User]:
    """Return the owners who may sign in, the first one first."""
    owners = User.objects.filter(Q(is_superuser=True) | Q(groups__name=OWNER), is_active=True)
    return owners.distinct().order_by("id")
