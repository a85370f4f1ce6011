from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from django.db.models import QuerySet

from memoryhub.core.events.event_types import event_type, names_where, quoted
from memoryhub.core.events.projection import Event, read_models
from memoryhub.core.fields import PositionField
from memoryhub.core.log.digests import GENESIS, HEADER, canonical_json
from memoryhub.core.models import RawEvent
from memoryhub.core.schemas import STORED
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import NOT_INDEXED

_BATCH = 1000


# A part of the log. All given conditions must match.
@dataclass(frozen=True, slots=True)
class ReplayWindow:
    stream_id: str = ""
    session_id: str = ""
    turn_id: str = ""
    # Any of these.
    event_types: tuple[str, ...] = ()
    # ISO 8601, inclusive.
    since: str = ""
    # ISO 8601, exclusive.
    until: str = ""
    # Exclusive.
    after: int = 0
    # Inclusive.
    up_to: int | None = None
    limit: int | None = None

    def events(self) -> QuerySet[RawEvent]:
        return self.matching().order_by("position")[: self.limit]

    def matching(self) -> QuerySet[RawEvent]:
        wanted = {
            "stream_id": self.stream_id,
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "event_type__in": self.event_types,
            "occurred_at__gte": self.since,
            "occurred_at__lt": self.until,
        }
        found = RawEvent.objects.filter(
            position__gt=self.after, **{key: value for key, value in wanted.items() if value}
        )
        return found if self.up_to is None else found.filter(position__lte=self.up_to)


def head(database: str = "main") -> tuple[int, str]:
    found = rows.fetch(f"SELECT position, chain_digest FROM {database}.raw_events ORDER BY position DESC LIMIT 1")
    return found[0] if found else (0, GENESIS)


def digest_at(position: int) -> str | None:
    found = rows.fetch("SELECT chain_digest FROM raw_events WHERE position = %s", [position])
    return found[0][0] if found else None


def read_models_ahead() -> str:
    """Return, as a sentence, that the read models have an id beyond the log's end; "" if they don't.

    Then the tail of the log was cut together with its anchor, or a row was added without an event.
    """
    # In this order: another process may append between the two
    last = max((position or 0 for position in rows.fetch(_last_ids())[0]), default=0)
    end, _ = head()
    return f"the log ends at #{end}, but #{last} is in the read models" if last > end else ""


@cache
def _last_ids() -> str:
    keys = [(model._meta.db_table, model._meta.pk) for model in read_models()]
    # One index lookup each; PostgreSQL plans these four times as fast as a UNION
    lookups = [f"(SELECT max({key.column}) FROM {table})" for table, key in keys if isinstance(key, PositionField)]
    return f"SELECT {', '.join(lookups)}"


def last_erasure(database: str = "main") -> int:
    found = rows.fetch(
        f"SELECT max(position) FROM {database}.raw_events WHERE event_type IN ({_types_that_remove_text()})"
    )
    return found[0][0] or 0


def erased_after(position: int, database: str = "main") -> bool:
    return bool(
        rows.fetch(
            # The indexes of a damaged file may lack an event (decision 32).
            f"SELECT 1 FROM {database}.raw_events {NOT_INDEXED} WHERE position > %s "
            f"AND event_type IN ({_types_that_remove_text()}) LIMIT 1",
            [position],
        )
    )


def _types_that_remove_text() -> str:
    return quoted(names_where(lambda event_type: event_type.removes_text))


def read(window: ReplayWindow) -> Iterator[Event[Any]]:
    """Yield events with their payloads in the current schema version; ``payload`` is None once erased."""
    for row in window.events().iterator(_BATCH):
        yield event_of(row)


class StoredEvent(Protocol):
    """An event with all columns of the log as attributes, from wherever it was read."""

    @property
    def position(self) -> int: ...
    @property
    def chain_digest(self) -> str: ...


def event_of(row: StoredEvent) -> Event[Any]:
    return _event(tuple(getattr(row, name) for name in _COLUMNS))


def read_all(*, after: int = 0) -> Iterator[Event[Any]]:
    """Yield all events after a position at half the cost of ``read``."""
    while batch := rows.fetch(_READ_NEXT, [after, _BATCH]):
        yield from map(_event, batch)
        after = batch[-1][0]


_COLUMNS = (
    "position event_id event_type event_version stream_id stream_seq session_id turn_id actor source occurred_at "
    "payload_json"
).split()
_READ_NEXT = f"SELECT {', '.join(_COLUMNS)} FROM raw_events WHERE position > %s ORDER BY position LIMIT %s"


def _event(row: tuple[Any, ...]) -> Event[Any]:
    position, event_id, name, version, stream, seq, session, turn, actor, source, occurred, payload_json = row
    kind = event_type(name)
    if kind is None:
        raise LookupError(f"event #{position} is of type {name!r}, which this version does not know")
    payload = None if payload_json is None else kind.schema.model_validate_json(payload_json, context=STORED)
    return Event(
        position,
        event_id,
        name,
        version,
        stream,
        seq,
        session,
        turn,
        actor,
        source,
        occurred,
        payload,
    )


def replay(window: ReplayWindow) -> Iterator[str]:
    """Yield one line of canonical JSON per event: the same bytes on every run."""
    for row in window.events().iterator(_BATCH):
        yield canonical_json(described(row))


def described(row: RawEvent) -> dict[str, Any]:
    payload = None if row.payload_json is None else json.loads(row.payload_json)
    values = {name: getattr(row, name) for name in (*HEADER, "payload_digest", "chain_digest")}
    return dict(sorted({**values, "payload": payload}.items()))
