"""The rights of people: their role in the hub, and their memberships (decision 71).

Read from hub.db at each request, so that a change takes effect at the next one.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db import connections

from memoryhub.core.permissions import (
    EVERYTHING,
    LIMITED_ROLES,
    MEMBER_ROLES,
    NOTHING,
    PERMISSIONS,
    ROLES,
    Act,
    Grant,
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
        found = cursor.fetchall()
    if not found:
        return NOTHING
    roles = {"owner" if is_superuser else role for is_superuser, role in found} & set(ROLES)
    acts = frozenset[Act]().union(*(ROLES[role] for role in roles))
    return _grant(name, acts, everywhere=bool(roles & _FULL))


def _grant(name: str, acts: frozenset[Act], *, everywhere: bool) -> Grant:
    places = dict(Membership.objects.filter(username=name).values_list("place", "role"))
    return Grant(acts, everywhere, {place: MEMBER_ROLES[role] for place, role in places.items()}, org_of)


def org_of(project: str) -> str | None:
    """Return the id of a project's organisation, or None; the store is read only if it has changed since."""
    store = project_store(project)
    stamp = _stamp(store.path)
    known = _orgs.get(store.path)
    if known is None or known[0] != stamp or not _is_settled(stamp):
        known = _orgs[store.path] = stamp, _read_org(store) if stamp else None
    return known[1]


_Stamp = list[tuple[int, int, int]]
# By the path of the project's store: its files' stamp, and the organisation
_orgs: dict[Path, tuple[_Stamp, str | None]] = {}
# Two writes within the resolution of a file's time may leave the same stamp.
_SETTLED_SECONDS = 1.0


def _stamp(path: Path) -> _Stamp:
    found: _Stamp = []
    for part in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):
            stat = part.stat()
            found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return found


def _is_settled(stamp: _Stamp) -> bool:
    return all(time.time_ns() - changed > _SETTLED_SECONDS * 1e9 for _, changed, _ in stamp)


def _read_org(store: StoreId) -> str | None:
    with use_grant(EVERYTHING), use_store(store):
        return org_of_project()
