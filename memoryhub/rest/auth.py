"""Authentication of REST: a bearer token, or the admin's session with the CSRF token.

``request.auth`` is the actor, ``request.grant`` the allowed acts and projects (decision 23).
"""

from __future__ import annotations

import threading
from typing import Any

from django.core.signals import request_finished
from django.dispatch import receiver
from django.http import HttpRequest
from ninja.security import HttpBearer
from ninja.security.session import SessionAuth

from memoryhub.core.errors import HubError, Unauthorized
from memoryhub.core.permissions import EVERYTHING, HUB, TO_MAKE_PLACES, Act, Grant, demand, grant_of, use_grant
from memoryhub.core.secret_files import TOKEN, read_or_create_secret, secret_matches
from memoryhub.ops.serving.bridge import ACCEPTED, VERDICT
from memoryhub.registry import tokens

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PROJECT = "projects/<project_id>/"
# Reads by POST, because their input is a JSON body
_READS = frozenset({"query", "rollbacks/preview", "sanitise"})
# Changes under these routes of a project need an owner.
_GOVERNED = frozenset({"settings", "retention", "holds", "redactions", "rollbacks"})
# Routes of the hub that need an administrator: hooks may write to any project, as any client.
_ADMINISTERED = frozenset({"hooks"})


def act_of_route(method: str, route: str) -> Act:
    """Return the act that a request needs; ``route`` is a pattern such as ``projects/<project_id>/memories``."""
    # For members, the service decides: owners of the place and those who manage people may change them.
    if method in _SAFE or route.split("/")[2:3] == ["members"]:
        return Act.VIEW
    if route.partition("/")[0] in _ADMINISTERED:
        return Act.ADMINISTER
    if not route.startswith(_PROJECT):
        return Act.GOVERN
    subroute = route.removeprefix(_PROJECT)
    if subroute in _READS:
        return Act.VIEW
    if subroute.partition("/")[0] in _GOVERNED:
        return Act.GOVERN
    return Act.REVIEW if route.endswith("/review") else Act.WRITE


TOKEN_ACTOR = "token"  # noqa: S105 - the actor of the hub's own token
HOW_TO_AUTHENTICATE = (
    "send 'Authorization: Bearer …' with a token from the Tokens page, or with the content of the file 'token' in the "
    "hub's home folder, or sign in"
)
_PREFIX = "api/v1/"
# note: callback to run at the end of the current request
_thread = threading.local()


def read_token() -> str:
    # Read for each request, so that a replaced file takes effect at once.
    return read_or_create_secret(TOKEN)


class BearerToken(HttpBearer):
    def authenticate(self, request: HttpRequest, token: str) -> Any:
        # A wrong token is refused, even with a valid session.
        text = token.strip()
        verdict = request.META.get(VERDICT, {})
        verdict[ACCEPTED] = False
        agent = tokens.recognise(text)
        verdict[ACCEPTED] = agent is not None or secret_matches(text, read_token())
        if agent is not None:
            if note := tokens.due_note(agent, request.META.get("REMOTE_ADDR", "")):
                _thread.note = note
            return _admitted(request, tokens.actor_of(agent), tokens.grant_of(agent))
        if not verdict[ACCEPTED]:
            raise Unauthorized(f"the token is wrong; {HOW_TO_AUTHENTICATE}")
        return _admitted(request, TOKEN_ACTOR, EVERYTHING)


class SignedIn(SessionAuth):
    """The admin's session; writes need its CSRF token in ``X-CSRFToken``."""

    def __call__(self, request: HttpRequest) -> Any:
        grant = grant_of(request.user)
        if Act.VIEW not in grant.acts:
            return None
        user = super().__call__(request)
        if user is None:
            return None
        return _admitted(request, user.get_username(), grant)


def is_known(request: HttpRequest) -> bool:
    """Return whether the caller may see details of all projects; never raises."""
    try:
        actor = BearerToken()(request) or SignedIn()(request)
    except HubError:
        return False
    return bool(actor) and not request.grant.is_limited  # type: ignore[attr-defined]


def _admitted(request: HttpRequest, actor: str, grant: Grant) -> str:
    match = request.resolver_match
    route = match.route.removeprefix(_PREFIX) if match else ""
    parameters = match.kwargs if match else {}
    place = HUB
    if "project_id" in parameters:
        place = f"project:{parameters['project_id']}"
    elif "org_id" in parameters:
        place = f"org:{parameters['org_id']}"
    # What the caller may not see is refused by ``use_store``, in the same words as what does not exist.
    if place == HUB or grant.at(place):
        purpose = ""  # for the error, where the act alone would be too general
        first, _, tail = route.partition("/")
        if first == "orgs" or (first == "projects" and "/" not in tail):
            purpose = TO_MAKE_PLACES
        with use_grant(grant):
            demand(act_of_route(request.method or "", route), to=purpose, place=place)
    request.grant = grant  # type: ignore[attr-defined]
    return actor


@receiver(request_finished)
def _note_use(**_: Any) -> None:
    note = _thread.__dict__.pop("note", None)
    if note is not None:
        note()
