"""Who may do what: five acts, and the permissions, roles and tokens that grant them (decision 23).

Pages call ``require(request.user, Act.REVIEW)`` before a change and ``may(…)`` before they show a button; templates use
``{% if may.review %}``. Code below the interfaces calls ``demand(Act.GOVERN)``, which checks the grant that the
interface set with ``use_grant``; without one, as on the command line, everything is allowed. The log checks every
event's ``act``, and the stores check projects, so an interface that forgets to ask is refused too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from memoryhub.core.errors import Forbidden


# What a caller may do; each act is useful only with those before it.
class Act(StrEnum):
    # See every page, and read through every interface.
    VIEW = "view"
    # Write, edit, delete softly and restore; settle conflicts; tags, relations, sessions and turns.
    WRITE = "write"
    # Accept and reject what agents propose; for people, never for agents that only write.
    REVIEW = "review"
    # Redact, erase, roll back, retention, and the description and settings of projects and organisations.
    GOVERN = "govern"
    # People, tokens and jobs of the hub.
    ADMINISTER = "administer"


ALL_ACTS = frozenset(Act)
# Django's permission for each act, granted by the groups of the roles.
PERMISSIONS = {act: f"memoryhub.{act}_hub" for act in Act}
# The groups, and what each may do.
ROLES = {
    "viewer": frozenset({Act.VIEW}),
    "reviewer": frozenset({Act.VIEW, Act.WRITE, Act.REVIEW}),
    "owner": ALL_ACTS,
}

# The scopes of tokens, and what each allows.
VERBS = {
    "read": frozenset({Act.VIEW}),
    "write": frozenset({Act.VIEW, Act.WRITE}),
    "admin": ALL_ACTS,
}

_WANTED = {
    Act.VIEW: "see this hub",
    Act.WRITE: "change stored data",
    Act.REVIEW: "accept or reject proposals",
    Act.GOVERN: "redact, erase, roll back, or change policies and settings",
    Act.ADMINISTER: "manage people, tokens and jobs",
}
# Part of the sentence for a caller who may not create projects.
TO_MAKE_PLACES = "create or set up projects and organisations"


# What a caller may do, and in which projects.
@dataclass(frozen=True, slots=True)
class Grant:
    acts: frozenset[Act] = ALL_ACTS
    # None: all projects, the organisations and the global scope.
    projects: frozenset[str] | None = None


EVERYTHING = Grant()
_grant: ContextVar[Grant] = ContextVar("grant", default=EVERYTHING)


def may(user: Any, act: Act) -> bool:
    return bool(user.is_active and user.has_perm(PERMISSIONS[act]))


def grant_of(user: Any) -> Grant:
    return Grant(frozenset(act for act in Act if may(user, act)))


def require(user: Any, act: Act, *, to: str = "") -> None:
    """Raise Forbidden unless a user may do ``act``; ``to`` names a narrower action for the message."""
    if not may(user, act):
        name = user.get_username() or "a visitor"
        raise Forbidden(f"{name} {_lacking(act, to)}; ask an owner for it", needs=act.value)


def demand(act: Act, *, to: str = "") -> None:
    """Raise Forbidden unless the current caller may do ``act``; ``to`` names a narrower action for the message."""
    if act not in _grant.get().acts:
        raise Forbidden(f"this caller {_lacking(act, to)}, or a token with {verb_for(act)}", needs=act.value)


def demand_hub() -> None:
    """Raise Forbidden if the caller's token is limited to some projects."""
    if _grant.get().projects is not None:
        raise Forbidden(
            "this token is limited to some projects; use another for organisations, the global scope and the hub"
        )


def reaches(project: str) -> bool:
    projects = _grant.get().projects
    return projects is None or project in projects


def reached(projects: Iterable[str]) -> list[str]:
    return [project for project in projects if reaches(project)]


@contextmanager
def use_grant(grant: Grant) -> Iterator[None]:
    token = _grant.set(grant)
    try:
        yield
    finally:
        _grant.reset(token)


def verb_for(act: Act) -> str:
    return next(verb for verb, acts in VERBS.items() if act in acts)


def _lacking(act: Act, to: str) -> str:
    roles = " or ".join(name for name, acts in ROLES.items() if act in acts)
    return f"may not {to or _WANTED[act]}; that needs the role {roles}"
