"""Who may do what: five acts, the permission that each one needs, and the question whether a caller has it.

Every door asks here, and no page, route or tool has a rule of its own:

- a page for its user: ``require(request.user, Act.REVIEW)`` before it changes anything, ``may(…)`` before it shows a
  button; templates ask ``{% if may.review %}``;
- what is below the doors for whoever calls: ``demand(Act.GOVERN)``. A door that lets in callers with fewer rights than
  all says which they have with ``use_grant``; where nobody said, as on the command line, everything is allowed.

Behind both stand the log, which demands of each event the ``act`` that its type declares, and the stores, which open
no project that the caller has no right to, whoever forgot to ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from memoryhub.core.errors import Forbidden


class Act(StrEnum):
    """What a caller may be allowed to do; each one is of use only with those before it."""

    VIEW = "view"
    """See every page, and read through every door."""
    WRITE = "write"
    """Write and edit, delete softly and restore, settle conflicts; tags and relations; sessions and turns."""
    REVIEW = "review"
    """Accept and reject what agents propose: a person's act, and never that of an agent that only writes."""
    GOVERN = "govern"
    """Redact, erase, roll back, retention, and the description and settings of projects and organisations."""
    ADMINISTER = "administer"
    """People, tokens and jobs of the hub."""


ALL_ACTS = frozenset(Act)
PERMISSIONS = {act: f"memoryhub.{act}_hub" for act in Act}
"""Django's name of the permission that each act needs; one of the roles' groups gives it."""
ROLES = {
    "viewer": frozenset({Act.VIEW}),
    "reviewer": frozenset({Act.VIEW, Act.WRITE, Act.REVIEW}),
    "owner": ALL_ACTS,
}
"""The groups, and the acts that each one may do."""

VERBS = {
    "read": frozenset({Act.VIEW}),
    "write": frozenset({Act.VIEW, Act.WRITE}),
    "admin": ALL_ACTS,
}
"""What a token may be made for, and the acts that each one allows."""

_WANTED = {
    Act.VIEW: "see this hub",
    Act.WRITE: "change what is kept here",
    Act.REVIEW: "accept or reject what is proposed",
    Act.GOVERN: "redact, erase, roll back, or change policies and settings",
    Act.ADMINISTER: "manage people, tokens and jobs",
}
TO_MAKE_PLACES = "make or set up projects and organisations"
"""What one may not do, said to who tries."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller may do, and in which projects."""

    acts: frozenset[Act] = ALL_ACTS
    projects: frozenset[str] | None = None
    """None: in all of them, in organisations, and in the global scope."""


EVERYTHING = Grant()
_grant: ContextVar[Grant] = ContextVar("grant", default=EVERYTHING)


def may(user: Any, act: Act) -> bool:
    """Whether a user of Django's may do it; nobody who is signed out or deactivated may do anything."""
    return bool(user.is_active and user.has_perm(PERMISSIONS[act]))


def grant_of(user: Any) -> Grant:
    """Return what a user may do."""
    return Grant(frozenset(act for act in Act if may(user, act)))


def require(user: Any, act: Act, *, to: str = "") -> None:
    """Pass if the user may do it.

    Args:
        user: of Django's.
        act: what is needed.
        to: what she wants to do, where that is less than all that the act allows.

    Raises:
        Forbidden: she may not; the sentence says which role may.
    """
    if not may(user, act):
        name = user.get_username() or "who is not signed in"
        raise Forbidden(f"{name} {_lacking(act, to)}, which an owner gives", needs=act.value)


def demand(act: Act, *, to: str = "") -> None:
    """Pass if whoever calls may do it, by whichever door.

    Args:
        act: what is needed.
        to: what it wants to do, where that is less than all that the act allows.

    Raises:
        Forbidden: the caller's role or token does not allow it.
    """
    if act not in _grant.get().acts:
        raise Forbidden(f"this caller {_lacking(act, to)}, or a token with {verb_for(act)}", needs=act.value)


def demand_hub() -> None:
    """Pass if whoever calls has a right to the whole hub, and not to some projects alone.

    Raises:
        Forbidden: it is a token for some projects.
    """
    if _grant.get().projects is not None:
        raise Forbidden(
            "this token is for some projects alone; organisations, the global scope and the hub need another"
        )


def reaches(project: str) -> bool:
    """Whether whoever calls may know of a project."""
    projects = _grant.get().projects
    return projects is None or project in projects


def reached(projects: Iterable[str]) -> list[str]:
    """Return those of the projects that whoever calls may know of."""
    return [project for project in projects if reaches(project)]


@contextmanager
def use_grant(grant: Grant) -> Iterator[None]:
    """Allow inside the block what the grant allows, and nothing else."""
    token = _grant.set(grant)
    try:
        yield
    finally:
        _grant.reset(token)


def verb_for(act: Act) -> str:
    """Return the least verb that allows an act."""
    return next(verb for verb, acts in VERBS.items() if act in acts)


def _lacking(act: Act, to: str) -> str:
    roles = " or ".join(name for name, acts in ROLES.items() if act in acts)
    return f"may not {to or _WANTED[act]}; that needs the role {roles}"
