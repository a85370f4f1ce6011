"""Who may do what, and where: acts, the roles and tokens that grant them, and the places for which they hold.

A place is a store's key: ``project:alpha``, ``org:acme`` or ``global`` (decisions 23 and 71). Pages call
``require(request.user, Act.REVIEW)`` before a change and ``may(…)`` before they show a button; templates use
``{% if may.review %}``. Code below the interfaces calls ``demand(Act.GOVERN)``, which checks the grant that the
interface set with ``use_grant``; without one, as on the command line, everything is allowed. The log checks every
event's ``act``, and ``use_store`` checks the place, so an interface that forgets to ask is refused too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from memoryhub.core.errors import Forbidden
from memoryhub.core.stores.routing import STORE_PREFIX, current_alias


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
# The groups, and what each may do in the hub and, but for the first two, in every place.
ROLES = {
    # Sees what they are a member of
    "member": frozenset({Act.VIEW}),
    # Manages people, and sees what they are a member of
    "administrator": frozenset({Act.VIEW, Act.ADMINISTER}),
    "viewer": frozenset({Act.VIEW}),
    "reviewer": frozenset({Act.VIEW, Act.WRITE, Act.REVIEW}),
    "owner": ALL_ACTS,
}

LIMITED_ROLES = frozenset({"member", "administrator"})
# The roles of a member of a project or an organisation, and what each may do there
MEMBER_ROLES = {role: acts - {Act.ADMINISTER} for role, acts in ROLES.items() if role not in LIMITED_ROLES}

# The scopes of tokens, and what each allows.
VERBS = {"read": frozenset({Act.VIEW}), "write": frozenset({Act.VIEW, Act.WRITE}), "admin": ALL_ACTS}

_ACTIONS = {
    Act.VIEW: "see this hub",
    Act.WRITE: "change stored data",
    Act.REVIEW: "accept or reject proposals",
    Act.GOVERN: "redact, erase, roll back, or change policies and settings",
    Act.ADMINISTER: "manage people, tokens and jobs",
}
# Part of the sentence for a caller who may not create projects.
TO_MAKE_PLACES = "create or set up projects and organisations"


# The hub as a whole: people, tokens, jobs, and the creation of places
HUB = ""
GLOBAL = "global"


# What a caller may do, and where.
@dataclass(frozen=True, slots=True)
class Grant:
    # In the hub as a whole
    acts: frozenset[Act] = ALL_ACTS
    # Whether ``acts`` hold in every place too
    everywhere: bool = True
    # By place. Those of an organisation hold in its projects.
    places: Mapping[str, frozenset[Act]] = field(default_factory=dict)
    # From a project's id to its organisation's; asked only if some place is an organisation
    org_of: Callable[[str], str | None] = lambda _: None
    # A person's token may do nothing that the person may not do.
    within: Grant | None = None

    def at(self, place: str) -> frozenset[Act]:
        acts = _NONE
        if self.everywhere or place == HUB:
            acts = self.acts
        if self.places and place != HUB:
            acts |= self._in(place)
        if self.within:
            acts &= self.within.at(place)
        return acts

    def inherits(self, here: str, place: str) -> bool:
        """Return whether ``place``, an organisation or the global scope, gives its memories to the project ``here``."""
        if place == GLOBAL:
            return True
        kind, _, project = here.partition(":")
        return kind == "project" and place == f"org:{self.org_of(project)}"

    @property
    def is_limited(self) -> bool:
        return not self.everywhere or bool(self.within and self.within.is_limited)

    def _in(self, place: str) -> frozenset[Act]:
        acts = self.places.get(place, _NONE)
        kind, _, project = place.partition(":")
        if kind == "project" and any(name.startswith("org:") for name in self.places):
            acts |= self.places.get(f"org:{self.org_of(project)}", _NONE)
        return acts


_NONE: frozenset[Act] = frozenset()
EVERYTHING = Grant()
NOTHING = Grant(_NONE)
_grant: ContextVar[Grant] = ContextVar("grant", default=EVERYTHING)
_grant_of_person: list[Callable[[Any], Grant]] = []


def grants_people(function: Callable[[Any], Grant]) -> Callable[[Any], Grant]:
    """Register the function from a signed-in person to their rights."""
    _grant_of_person[:] = [function]
    return function


def grant_of(user: Any) -> Grant:
    """Return the rights of a person; those of one request's user are looked up once."""
    grant: Grant | None = getattr(user, "hub_grant", None)
    if grant is None:
        grant = NOTHING
        if user.is_authenticated and user.is_active:
            grant = _grant_of_person[0](user)
        user.hub_grant = grant
    return grant


def may(user: Any, act: Act, *, place: str | None = None) -> bool:
    """Return whether a user may do ``act`` in ``place``; by default the current store, or else the hub."""
    return bool(user.is_active) and act in grant_of(user).at(_place_of(act, place))


def require(user: Any, act: Act, *, to: str = "", place: str | None = None) -> None:
    """Raise Forbidden unless a user may do ``act``; ``to`` names a narrower action for the message."""
    if not may(user, act, place=place):
        name = user.get_username() or "a visitor"
        raise Forbidden(f"{name} {_lacking(act, to)}; ask an owner for it", needs=act.value)


def demand(act: Act, *, to: str = "", place: str | None = None) -> None:
    """Raise Forbidden unless the current caller may do ``act``.

    Args:
        act: what they want to do.
        to: a narrower action for the message.
        place: where; by default in the current store, or else in the hub.
    """
    if allows(act, place=place):
        return
    where = _place_of(act, place)
    if _grant.get().is_limited and not where.startswith("project:"):
        raise Forbidden(_LIMITED, needs=act.value)
    verb = next(verb for verb, acts in VERBS.items() if act in acts)
    raise Forbidden(f"this caller {_lacking(act, to)}, or a token with {verb}", needs=act.value)


def allows(act: Act, *, place: str | None = None) -> bool:
    """Return whether ``demand`` would let the current caller do ``act``."""
    return act in _grant.get().at(_place_of(act, place))


def demand_everywhere() -> None:
    """Raise Forbidden if the caller is limited to some places."""
    if not allows_everywhere():
        raise Forbidden(_LIMITED)


def allows_everywhere() -> bool:
    return not _grant.get().is_limited


_LIMITED = (
    "this caller is limited to some projects or organisations; another place and the hub need another role or token"
)


def reaches(place: str) -> bool:
    """Return whether the caller may see a place itself, rather than only what a project inherits from it."""
    return bool(_grant.get().at(place))


def sees(place: str) -> bool:
    """Return whether the caller may see a place from here; a project reads its organisation and the global scope."""
    grant = _grant.get()
    here = current_place()
    return bool(grant.at(place)) or (here != HUB and bool(grant.at(here)) and grant.inherits(here, place))


def current_place() -> str:
    """Return the place of the current store, or ``HUB``. A view of the past belongs to no place: it is read-only."""
    alias = current_alias()
    return place_of_alias(alias) if alias else HUB


def place_of_alias(alias: str) -> str:
    place = alias.removeprefix(STORE_PREFIX)
    return GLOBAL if place == "global:global" else place


# People, tokens and jobs are the hub's, also for those who work in a store.
def _place_of(act: Act, place: str | None) -> str:
    if act is Act.ADMINISTER:
        return HUB
    return current_place() if place is None else place


@contextmanager
def use_grant(grant: Grant) -> Iterator[None]:
    token = _grant.set(grant)
    try:
        yield
    finally:
        _grant.reset(token)


def _lacking(act: Act, to: str) -> str:
    named = MEMBER_ROLES if act is not Act.ADMINISTER else ROLES
    roles = " or ".join(name for name, acts in named.items() if act in acts)
    return f"may not {to or _ACTIONS[act]}; that needs the role {roles}"
