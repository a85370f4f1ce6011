"""The rights of people: their role in the hub, and their memberships (decision 71).

Read from hub.db at each request, so that a change takes effect at the next one.
"""

from __future__ import annotations

from typing import Any

from django.db import connections

from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Forbidden
from memoryhub.core.file_stamps import FileStamp, file_stamps, is_settled
from memoryhub.core.permissions import (
    EVERYTHING,
    HUB,
    LIMITED_ROLES,
    MEMBER_ROLES,
    NOTHING,
    PERMISSIONS,
    ROLES,
    Act,
    Grant,
    allows,
    allows_everywhere,
    grants_people,
    use_grant,
)
from memoryhub.core.stores.store import StoreId, project_store, use_store
from memoryhub.models import Membership
from sessions_app.selectors import org_of_project

_FULL = set(ROLES) - LIMITED_ROLES
# Without Django's models of people, which MCP processes do not load
_ROLES_OF = (
    "SELECT u.is_superuser, g.name FROM auth_user u LEFT JOIN auth_user_groups ug ON ug.user_id = u.id "
    "LEFT JOIN auth_group g ON g.id = ug.group_id WHERE u.username = %s AND u.is_active"
)


@grants_people
def grant_of_user(user: Any) -> Grant:
    """Return what a signed-in person may do."""
    acts = frozenset(act for act in Act if user.has_perm(PERMISSIONS[act]))
    roles = {group.name for group in user.groups.all()} & set(ROLES)
    return _grant(user.username, acts, everywhere=bool(user.is_superuser or not roles or roles & _FULL))


def grant_of_person(name: str) -> Grant:
    """Return what a person may do, by their name, for their tokens; nothing if they are unknown or deactivated."""
    with connections["default"].cursor() as cursor:
        cursor.execute(_ROLES_OF, [name])
        memberships = cursor.fetchall()
    if not memberships:
        return NOTHING
    roles = {"owner" if is_superuser else role for is_superuser, role in memberships} & set(ROLES)
    acts = frozenset[Act]().union(*(ROLES[role] for role in roles))
    return _grant(name, acts, everywhere=bool(roles & _FULL))


def require_rights_of(name: str) -> None:
    """Raise Forbidden unless the caller may do everything that a person may, and so may let someone act as them."""
    rights = grant_of_person(name)
    held = [(HUB, rights.acts), *rights.places.items()]
    lacks_some = any(not allows(act, place=place) for place, acts in held for act in acts)
    if lacks_some or not (rights.is_limited or allows_everywhere()):
        raise Forbidden(
            f"{name[:64]} has a role that you do not have; ask an owner of the hub, or someone on its machine, for it"
        )


def _grant(name: str, acts: frozenset[Act], *, everywhere: bool) -> Grant:
    places = dict(Membership.objects.filter(username=name).values_list("place", "role"))
    return Grant(acts, everywhere, {place: MEMBER_ROLES[role] for place, role in places.items()}, org_of)


def org_of(project: str) -> str | None:
    """Return the id of a project's organisation, or None; a store of files is read only if it has changed since."""
    store = project_store(project)
    files = stores.watched(store)
    if not files:
        if not stores.exists(store):
            return None
        return _read_org(store)
    stamps, place = file_stamps(files), stores.location(store)
    cached = _orgs.get(place)
    if cached is None or cached[0] != stamps or not _are_settled(stamps):
        cached = stamps, _read_org(store) if stamps else None
        while len(_orgs) >= _MOST_ORGS and place not in _orgs:
            _orgs.pop(next(iter(_orgs), ""), None)
        _orgs[place] = cached
    return cached[1]


# By the location of the project's store: its files' stamps, and the organisation
_orgs: dict[str, tuple[list[FileStamp], str | None]] = {}
# Each store counts once; the longest known is forgotten first.
_MOST_ORGS = 1_000
# Two writes within the resolution of a file's time may leave the same stamp.
_SETTLED_SECONDS = 1.0


def _are_settled(stamps: list[FileStamp]) -> bool:
    return all(is_settled(stamp.changed, seconds=_SETTLED_SECONDS) for stamp in stamps)


def _read_org(store: StoreId) -> str | None:
    with use_grant(EVERYTHING), use_store(store):
        return org_of_project()
