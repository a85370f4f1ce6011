"""Who calls: what each may do is written down here, and never asked of the code under test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from memoryhub.core import clock
from memoryhub.core.permissions import Act
from memoryhub.models import Membership
from memoryhub.registry.people import PersonAdd, add_person, give_role
from memoryhub.registry.tokens import TokenCreate, create_token
from memoryhub.web.signin import ensure_owner
from tests.permissions.world import GLOBAL, ORG_OF, OTHER, OWN, OWN_ORG, PLACES, SISTER

NOTHING: frozenset[Act] = frozenset()
VIEW = frozenset({Act.VIEW})
WRITE = VIEW | {Act.WRITE}
REVIEW = WRITE | {Act.REVIEW}
GOVERN = REVIEW | {Act.GOVERN}
ALL = frozenset(Act)
_HUB_ROLES = {"viewer": VIEW, "reviewer": REVIEW, "owner": ALL}
_ROLES = {"viewer": VIEW, "reviewer": REVIEW, "owner": GOVERN}
_VERBS = {"read": VIEW, "write": WRITE, "admin": ALL}

At = dict[str, frozenset[Act]]
# One for all: making it reads the list of all static files
_HANDLER = Client().handler


@dataclass(frozen=True)
class Caller:
    name: str
    # What they may do in a place by its name; nothing where it is missing
    at: At = field(default_factory=dict)
    # What they may do in the hub as a whole
    hub: frozenset[Act] = NOTHING
    token: str = field(default="", repr=False)
    user: User | None = field(default=None, repr=False, compare=False)

    @cached_property
    def client(self) -> Client:
        client = Client(headers={"host": "localhost"}, raise_request_exception=False)
        client.handler = _HANDLER
        if self.user:
            client.force_login(self.user)
        return client

    @property
    def is_person(self) -> bool:
        return self.user is not None

    @property
    def is_known(self) -> bool:
        return bool(self.at or self.hub)

    @property
    def is_whole(self) -> bool:
        """Whether they see every place, and so the whole hub."""
        return not PLACES.keys() - self.at.keys()

    def acts(self, place: str) -> frozenset[Act]:
        """Return what they may do in the place of this name, or in the hub."""
        return self.at.get(place, NOTHING) if place else self.hub

    @cached_property
    def seen(self) -> frozenset[str]:
        """Names that answers to them may contain: a project inherits from its organisation and the global scope."""
        seen = {place for place, acts in self.at.items() if acts}
        projects = seen & ORG_OF.keys()
        return frozenset(seen | {ORG_OF[project] for project in projects} | ({GLOBAL} if projects else set()))

    @cached_property
    def hidden(self) -> frozenset[str]:
        return frozenset(PLACES) - self.seen


def people() -> list[Caller]:
    """Return a person of each role of the hub, and members of some places, signed in."""
    made = [
        Caller("hub viewer", dict.fromkeys(PLACES, VIEW), VIEW, user=_person("vic", "viewer")),
        Caller("hub reviewer", dict.fromkeys(PLACES, REVIEW), REVIEW, user=_person("rea", "reviewer")),
        Caller("hub owner", dict.fromkeys(PLACES, ALL), ALL, user=ensure_owner()),
        Caller("stranger", {}, VIEW, user=_person("sam", "member")),
        Caller("administrator", {}, VIEW | {Act.ADMINISTER}, user=_person("ada", "administrator")),
    ]
    memberships = [("own", OWN, role) for role in _ROLES] + [("org", OWN_ORG, role) for role in _ROLES]
    for label, place, role in [*memberships, ("other", OTHER, "owner"), ("sister", SISTER, "reviewer")]:
        user = _person(f"{label}-{role}", "member")
        Membership.objects.create(
            username=user.username, place=PLACES[place], role=role, given_at=clock.now(), given_by="owner"
        )
        made.append(Caller(f"{role} of {label}", dict.fromkeys(_within(place), _ROLES[role]), VIEW, user=user))
    return made


def tokens() -> list[Caller]:
    """Return tokens of agents, for the hub, an organisation and some projects; and of people, of whom they are less."""
    return [
        *(_token(f"hub-{verb}", verb, dict.fromkeys(PLACES, acts), acts) for verb, acts in _VERBS.items()),
        *(_token(f"own-{verb}", verb, {OWN: acts}, projects=[OWN]) for verb, acts in _VERBS.items()),
        _token("other-admin", "admin", {OTHER: ALL}, projects=[OTHER]),
        _token("two-write", "write", {SISTER: WRITE, OTHER: WRITE}, projects=[SISTER, OTHER]),
        _token("org-write", "write", dict.fromkeys(_within(OWN_ORG), WRITE), orgs=[OWN_ORG]),
        _token("all", "admin", {OWN: VIEW}, VIEW, person="own-viewer"),
        _token("all", "admin", {OWN: GOVERN}, VIEW, person="own-owner"),
        _token("all", "write", dict.fromkeys(_within(OWN_ORG), WRITE), VIEW, person="org-owner"),
        _token("sister", "admin", {SISTER: GOVERN}, person="org-owner", projects=[SISTER]),
        _token("all", "admin", {}, VIEW, person="sam"),
        _token("all", "admin", {}, VIEW | {Act.ADMINISTER}, person="ada"),
    ]


def nobodies() -> list[Caller]:
    """Return callers whom the hub does not know: not signed in, and with a token that is made up."""
    return [Caller("nobody"), Caller("a made up token", token=f"mh_{'0' * 8}_{'x' * 43}")]


def _within(place: str) -> Iterable[str]:
    return [place, *(project for project, org in ORG_OF.items() if org == place)]


def _person(name: str, role: Any) -> User:
    user = add_person(command=PersonAdd(name=name, role="viewer"))
    give_role(user, role)
    return user


def _token(name: str, verb: str, at: At, hub: frozenset[Act] = NOTHING, **limits: Any) -> Caller:
    command = TokenCreate.model_validate({"name": name, "verbs": [verb], **limits})
    kept, text = create_token(command=command, by="owner")
    return Caller(f"token {kept.name}", at, hub, text)
