"""Who may use the REST door: the bearer of a token, or a signed-in user whose page sends the CSRF token.

Whoever it is, ``request.auth`` says who acts, and ``request.grant`` what she or it may do, and in which projects.
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
from memoryhub.core.permissions import EVERYTHING, TO_MAKE_PLACES, Act, Grant, demand, grant_of, use_grant
from memoryhub.core.secret_files import TOKEN, read_or_create_secret, secret_matches
from memoryhub.models import AgentToken
from memoryhub.registry import tokens

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PROJECT = "projects/<project_id>/"
_READS = frozenset({"query", "rollbacks/preview", "sanitise"})
"""What takes its question in a body: POST changes nothing there."""
_GOVERNED = frozenset({"settings", "retention", "holds", "redactions", "rollbacks"})
"""The first parts of a project's routes whose changes are an owner's."""
_ADMINISTERED = frozenset({"hooks"})
"""Those of the hub's: hooks speak in a client's name, and may in any project."""


def act_of_route(method: str, route: str) -> Act:
    """Return what a request needs.

    Args:
        method: of HTTP, in capitals.
        route: Django's pattern without what all routes begin with, such as ``projects/<project_id>/memories``.
    """
    if method in _SAFE:
        return Act.VIEW
    if not route.startswith(_PROJECT):
        return Act.ADMINISTER if route.partition("/")[0] in _ADMINISTERED else Act.GOVERN
    own = route.removeprefix(_PROJECT)
    if own in _READS:
        return Act.VIEW
    if own.partition("/")[0] in _GOVERNED:
        return Act.GOVERN
    return Act.REVIEW if route.endswith("/review") else Act.WRITE


def wish_of_route(route: str) -> str:
    """Return what a change by a route is, where its act allows more than that; "" where the act says it.

    Args:
        route: as ``act_of_route`` takes it.
    """
    first, _, rest = route.partition("/")
    return TO_MAKE_PLACES if first == "orgs" or (first == "projects" and "/" not in rest) else ""


TOKEN_ACTOR = "token"  # noqa: S105 - who acts, when the hub's own token does
HOW = (
    "send 'Authorization: Bearer …' with a token of the page Tokens, or with the text of the file 'token' in the hub's "
    "home folder, or sign in"
)
_PREFIX = "api/v1/"
_thread = threading.local()
"""``note``: what is to be done at the end of the request that this thread answers."""


def read_token() -> str:
    """Return the hub's bearer token, made on first use; read anew each time, so that a replaced file counts at once.

    Raises:
        Unavailable: its file cannot be read or written, or holds what is no secret.
    """
    return read_or_create_secret(TOKEN)


class BearerToken(HttpBearer):
    """The text of the file ``token`` in the hub's home folder, or an agent's token."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        """Return the actor.

        Raises:
            Unauthorized: the token is not this hub's, has expired, or was revoked; a session beside it does not count.
            Forbidden: it does not allow what the route does.
            Unavailable: the hub's own token cannot be read.
        """
        text = token.strip()
        agent = tokens.recognise(text)
        if agent is not None:
            _note_at_the_end(request, agent)
            return _admitted(request, tokens.actor_of(agent), tokens.grant_of(agent))
        if not secret_matches(text, read_token()):
            raise Unauthorized(f"this is not the token of this hub; {HOW}")
        return _admitted(request, TOKEN_ACTOR, EVERYTHING)


class SignedIn(SessionAuth):
    """The session of the admin; writes need its CSRF token in ``X-CSRFToken``."""

    def __call__(self, request: HttpRequest) -> Any:
        """Return the user's name, or None for who is not signed in.

        Raises:
            Forbidden: her role does not allow what the route does.
        """
        grant = grant_of(request.user)
        if Act.VIEW not in grant.acts:
            return None
        user = super().__call__(request)
        return _admitted(request, user.get_username(), grant) if user else None


def is_known(request: HttpRequest) -> bool:
    """Whether the request comes from someone who may see details of all projects; never raises."""
    try:
        actor = BearerToken()(request) or SignedIn()(request)
    except HubError:
        return False
    return bool(actor) and request.grant.projects is None  # type: ignore[attr-defined]


def _admitted(request: HttpRequest, actor: str, grant: Grant) -> str:
    route = request.resolver_match.route if request.resolver_match else ""
    own = route.removeprefix(_PREFIX)
    with use_grant(grant):
        demand(act_of_route(request.method or "", own), to=wish_of_route(own))
    request.grant = grant  # type: ignore[attr-defined]
    return actor


def _note_at_the_end(request: HttpRequest, agent: AgentToken) -> None:
    """Keep for the end of the request what notes that the token was used."""
    note = tokens.due_note(agent, request.META.get("REMOTE_ADDR", ""))
    if note is not None:
        _thread.note = note


@receiver(request_finished)
def _note_use(**_: Any) -> None:
    """Do it now that the answer is sent."""
    note = _thread.__dict__.pop("note", None)
    if note is not None:
        note()
