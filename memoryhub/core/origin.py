"""The origin of a change: interface, actor and session. An interface sets it once; every event inside carries it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

# Prefix of the actor of a change made with an agent's token.
AGENT_PREFIX = "token:"
# Interfaces that only people use: the pages, and a command that they type at a terminal. What they write is accepted.
ADMIN, TERMINAL = "admin", "terminal"
PERSONS_DOORS = frozenset({ADMIN, TERMINAL})
# Trace id of the sample project's events; no client wrote them
SAMPLE_TRACE = "memory-hub demo"


def named_reader(actor: str) -> str:
    """Return an actor that a token names; "" for clients on this machine, which call themselves what they like."""
    if "/" in actor or actor.startswith(AGENT_PREFIX):
        return actor
    return ""


def kept_folder(directory: str) -> str:
    """Return a session's folder as it is stored: one of another machine begins with its sender, so is no path here."""
    sender = named_reader(_current.get().actor).removeprefix(AGENT_PREFIX)  # which looks like the name of a secret
    if sender and directory.startswith("/"):
        return f"{sender}:{directory}"
    return directory


def reader_of(actor: str, source: str) -> tuple[str, str]:
    """Return the person and the client of an event; the person is "" for agents and for clients on this machine."""
    person, slash, client = actor.partition("/")
    if slash:
        return person, client
    if source in PERSONS_DOORS:
        return actor, ""
    return "", actor


# Header fields of an event that are not in its payload.
@dataclass(frozen=True, slots=True)
class Origin:
    # The interface: ``mcp``, ``rest``, ``admin``, ``terminal``, ``cli``, ``job`` or ``service``.
    source: str = "service"
    # The name of a client, user or job.
    actor: str = "unknown"
    session_id: str = ""
    turn_id: str = ""
    trace_id: str = ""
    # Proves that the caller's turn is open; never stored.
    ack_token: str = ""


_NOWHERE = Origin()
_current: ContextVar[Origin] = ContextVar("origin", default=_NOWHERE)


def current_origin() -> Origin:
    return _current.get()


@contextmanager
def use_origin(**changes: str) -> Iterator[Origin]:
    origin = replace(_current.get(), **changes)
    token = _current.set(origin)
    try:
        yield origin
    finally:
        _current.reset(token)
