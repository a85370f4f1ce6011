"""Who may use the REST door: the bearer of the hub's token, or a signed-in user whose page sends the CSRF token."""

from __future__ import annotations

import hmac
from typing import Any

from django.http import HttpRequest
from ninja.security import HttpBearer
from ninja.security.session import SessionAuthIsStaff

from memoryhub import env
from memoryhub.core.errors import Unauthorized

TOKEN_ACTOR = "token"  # noqa: S105 - who acts, when the token does
HOW = "send 'Authorization: Bearer …' with the text of the file 'token' in the hub's home folder, or sign in"


def read_token() -> str:
    """Return the hub's bearer token, made on first use; read anew each time, so that a replaced file counts at once."""
    try:
        return (env.home() / env.TOKEN_FILE).read_text().strip()
    except FileNotFoundError:
        return env.read_or_create_secret(env.TOKEN_FILE)


class BearerToken(HttpBearer):
    """The text of the file ``token`` in the hub's home folder."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        """Return the actor.

        Raises:
            Unauthorized: the token is not this hub's; a session beside it does not count then.
        """
        if not hmac.compare_digest(token.strip().encode("utf-8", "replace"), read_token().encode()):
            raise Unauthorized(f"this is not the token of this hub; {HOW}")
        return TOKEN_ACTOR


class SignedIn(SessionAuthIsStaff):
    """The session of the admin; writes need its CSRF token in ``X-CSRFToken``."""

    def __call__(self, request: HttpRequest) -> Any:
        """Return the user's name, or None for who is not signed in."""
        if not request.user.is_authenticated:
            return None
        user = super().__call__(request)
        return user.get_username() if user else None


def is_known(request: HttpRequest) -> bool:
    """Whether the request comes from someone who may see details; never raises."""
    try:
        return bool(BearerToken()(request) or SignedIn()(request))
    except Unauthorized:
        return False
