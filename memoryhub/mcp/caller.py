"""The caller of a request, as the HTTP side passes it to the server. Does not import the SDK."""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub.core.permissions import EVERYTHING, Grant

SESSION_HEADER = "mcp-session-id"
# Key of the ``Admitted`` in the scope of an HTTP request
ADMITTED = "memoryhub.admitted"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The caller of an HTTP request, and the project of its address."""

    project: str
    # "" with the hub's own token: then the client's name is the actor.
    actor: str = ""
    grant: Grant = EVERYTHING
    # The token that sessions belong to, and whose calls and streams are counted
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a tool; ``connection`` is the one whose turn its writes belong to."""

    actor: str
    connection: str
    # Over stdio everything is allowed, as for the user who started the process.
    grant: Grant = EVERYTHING
