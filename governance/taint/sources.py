"""Whom a store's events come from: what a person chooses from."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Max

from memoryhub.core.models import RawEvent

MAX_SESSIONS = 200
MAX_ACTORS = 100


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
    named = RawEvent.objects.exclude(**{column: ""}).values_list(column)
    found = named.annotate(events=Count("*"), last=Max("occurred_at")).order_by("-last")[:most]
    return [Source(*row) for row in found]
