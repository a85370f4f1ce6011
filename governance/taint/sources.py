"""Whom a store's events come from: what a person chooses from."""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub.core import rows

MAX_SESSIONS = 200
MAX_ACTORS = 100

_COUNTED = (
    "SELECT {0}, count(*), max(occurred_at) FROM raw_events WHERE {0} <> '' GROUP BY {0} ORDER BY 3 DESC LIMIT %s"
)


@dataclass(frozen=True, slots=True)
class Source:
    """A session, a client or a door."""

    name: str
    events: int
    last: str
    """When its last event happened; ISO 8601."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Those that a store has events of, the latest first."""

    sessions: list[Source]
    actors: list[Source]
    doors: list[Source]


def sources() -> Sources:
    """Return the sessions, the clients and the doors that events came from."""
    return Sources(_of("session_id", MAX_SESSIONS), _of("actor", MAX_ACTORS), _of("source", MAX_ACTORS))


def _of(column: str, most: int) -> list[Source]:
    return [Source(*row) for row in rows.fetch(_COUNTED.format(column), [most])]
