"""Where a change comes from: the door, who stands behind it, and the session it belongs to.

A door sets the origin once; every event appended inside carries it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

AGENT_PREFIX = "token:"
"""What the names of those begin with who act by an agent's token."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The header fields of an event that its payload does not know."""

    source: str = "service"
    """The door: ``mcp``, ``rest``, ``admin``, ``cli``, ``job`` or ``service``."""
    actor: str = "unknown"
    """Who acts: a client's name, a user's name, a job's name."""
    session_id: str = ""
    turn_id: str = ""
    trace_id: str = ""
    ack_token: str = ""
    """What the caller shows to prove that its turn is open; never stored."""


_NOWHERE = Origin()
_current: ContextVar[Origin] = ContextVar("origin", default=_NOWHERE)


def current_origin() -> Origin:
    """Return the origin that events appended now will carry."""
    return _current.get()


@contextmanager
def use_origin(**changes: str) -> Iterator[Origin]:
    """Change fields of the current origin inside the block."""
    origin = replace(_current.get(), **changes)
    token = _current.set(origin)
    try:
        yield origin
    finally:
        _current.reset(token)
