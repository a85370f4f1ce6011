"""Who may do what: four acts, the permission that each one needs, and the question whether a caller has it.

Every door asks here, and no page, route or tool has a rule of its own:

- a page for its user: ``require(request.user, Act.REVIEW)`` before it changes anything, ``may(…)`` before it shows a
  button; templates ask ``{% if may.review %}``;
- what is below the doors for whoever calls: ``demand(Act.GOVERN)``. A door that lets in callers with fewer rights than
  all says which they have with ``use_acts``; where nobody said, as on the command line, every act is allowed.

Behind both stands the log: it demands of each event the act that ``act_of_event`` names, whoever forgot to ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any

from memoryhub.core.errors import Forbidden


class Act(StrEnum):
    """What a caller may be allowed to do; each one is of use only with those before it."""

    VIEW = "view"
    """See every page, and read through every door."""
    REVIEW = "review"
    """Write and edit, accept and reject, merge, delete softly and restore; settle conflicts; tags and relations."""
    GOVERN = "govern"
    """Redact, erase, roll back, retention, and the description and settings of projects and organisations."""
    ADMINISTER = "administer"
    """People, tokens and jobs of the hub."""


ALL_ACTS = frozenset(Act)
PERMISSIONS = {act: f"memoryhub.{act}_hub" for act in Act}
"""Django's name of the permission that each act needs; one of the roles' groups gives it."""
ROLES = {
    "viewer": frozenset({Act.VIEW}),
    "reviewer": frozenset({Act.VIEW, Act.REVIEW}),
    "owner": ALL_ACTS,
}
"""The groups, and the acts that each one may do."""

_WANTED = {
    Act.VIEW: "see this hub",
    Act.REVIEW: "change what is kept here",
    Act.GOVERN: "redact, erase, roll back, or change policies and settings",
    Act.ADMINISTER: "manage people, tokens and jobs",
}
_BY_EVENT = {"context.packed": Act.VIEW, "payload": Act.GOVERN, "project": Act.GOVERN, "quarantine": Act.GOVERN}
"""What an event needs by its type, or by the first part of it, where that is not ``REVIEW``.

That a pack was given is noted when one only reads.
"""
_allowed: ContextVar[frozenset[Act]] = ContextVar("allowed_acts", default=ALL_ACTS)


def may(user: Any, act: Act) -> bool:
    """Whether a user of Django's may do it; nobody who is signed out or deactivated may do anything."""
    return bool(user.is_active and user.has_perm(PERMISSIONS[act]))


def acts_of(user: Any) -> frozenset[Act]:
    """Return what a user may do."""
    return frozenset(act for act in Act if may(user, act))


def require(user: Any, act: Act) -> None:
    """Pass if the user may do it.

    Raises:
        Forbidden: she may not; the sentence says which role may.
    """
    if not may(user, act):
        raise Forbidden(f"{user.get_username() or 'who is not signed in'} {_lacking(act)}", needs=act.value)


def demand(act: Act) -> None:
    """Pass if whoever calls may do it, by whichever door.

    Raises:
        Forbidden: the caller's role or token does not allow it.
    """
    if act not in _allowed.get():
        raise Forbidden(f"this caller {_lacking(act)}", needs=act.value)


def act_of_event(event_type: str) -> Act:
    """Return what appending an event of this type needs."""
    return _BY_EVENT.get(event_type) or _BY_EVENT.get(event_type.partition(".")[0], Act.REVIEW)


@contextmanager
def use_acts(acts: frozenset[Act]) -> Iterator[None]:
    """Allow these acts and no others inside the block."""
    token = _allowed.set(acts)
    try:
        yield
    finally:
        _allowed.reset(token)


def _lacking(act: Act) -> str:
    roles = " or ".join(name for name, acts in ROLES.items() if act in acts)
    return f"may not {_WANTED[act]}; that needs the role {roles}, which an owner gives on the page People"
