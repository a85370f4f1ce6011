"""Read the log of the current store: events by stream, session, turn, type and window; its head and erasures.

``events()`` is all events; each method of ``EventQuerySet`` narrows them and returns a query set of Django's, in the
order of the log, so ``last()`` is the newest. Outside ``core``, nothing else selects from the log's table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol, Self

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import RawSQL

from memoryhub.core.events.event_types import EventType, event_type, names_where, quoted
from memoryhub.core.events.projection import Event, read_models, void_sql
from memoryhub.core.fields import PositionField
from memoryhub.core.log.digests import GENESIS, HEADER, canonical_json
from memoryhub.core.models import RawEvent
from memoryhub.core.schemas import STORED
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, NOT_INDEXED, TEXTS, json_list
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.text import first_line

_BATCH = 1000

# A row of the log, with all its columns
StoredEvent = RawEvent


class EventQuerySet(QuerySet[StoredEvent, StoredEvent]):
    def at(self, positions: Iterable[int]) -> Self:
        """Events at any number of positions."""
        return self.filter(position__in=as_parameter(IDS, positions))

    def of_stream(self, *streams: str) -> Self:
        """Events of any of the streams, such as ``memory:412``."""
        return self._of_any("stream_id", streams)

    def of_session(self, *session_ids: str) -> Self:
        return self._of_any("session_id", session_ids)

    def of_turn(self, session_id: str, turn_id: str) -> Self:
        return self.filter(session_id=session_id, turn_id=turn_id)

    def of_type(self, *types: EventType[Any] | str) -> Self:
        """Events of any of the types, or of their names."""
        return self._of_any("event_type", [of if isinstance(of, str) else of.name for of in types])

    def with_key(self, *keys: str) -> Self:
        """Events that were appended under any of the idempotency keys."""
        return self._of_any("idempotency_key", keys)

    def window(self, *, after: int = 0, up_to: int | None = None, since: str = "", until: str = "") -> Self:
        """Events in a range.

        Args:
            after: the position before the first.
            up_to: the last position.
            since: the earliest time, in ISO 8601 as in the log.
            until: the time before which they are.
        """
        conditions = Q(position__gt=after)
        if up_to is not None:
            conditions &= Q(position__lte=up_to)
        if since:
            conditions &= Q(occurred_at__gte=since)
        if until:
            conditions &= Q(occurred_at__lt=until)
        return self.filter(conditions)

    def readable(self) -> Self:
        """Events whose payload was not erased."""
        return self.filter(payload_json__isnull=False)

    def without_undone(self) -> Self:
        """Events that read models are built from: not those of imports that were undone (decision 67)."""
        return self.exclude(position__in=RawSQL(rows.rendered(void_sql()), []))  # noqa: S611 - a constant

    def payloads(self) -> dict[int, dict[str, Any]]:
        """Return the payloads that were not erased, as JSON data by position."""
        texts = self.values_list("position", "payload_json")
        return {position: json.loads(text) for position, text in texts if text is not None}

    def count_by_type(self) -> dict[str, int]:
        """Return the number of events of each type, in the order of their names."""
        counts = self.order_by("event_type").values_list("event_type").annotate(Count("position"))
        return dict(counts)

    def positions(self) -> list[int]:
        return list(self.values_list("position", flat=True))

    def _of_any(self, column: str, values: Iterable[str]) -> Self:
        listed = list(values)
        if len(listed) == 1:
            return self.filter(**{column: listed[0]})
        return self.filter(**{f"{column}__in": as_parameter(TEXTS, listed)})


def as_parameter(form: str, values: Iterable[int | str]) -> RawSQL:
    """Return values for a lookup ``__in`` as one parameter, as ``IDS`` or ``TEXTS``: databases limit their number."""
    return RawSQL(rows.rendered(form)[1:-1], [json_list(values)])  # noqa: S611 - a constant


def events() -> EventQuerySet:
    """Return all events of the current store, in the order of the log."""
    return EventQuerySet(RawEvent, using=require_current_alias()).order_by("position")


def iterate_columns(*columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield columns of all events, of one state of the store, of which only some are in memory at a time."""
    return rows.iterate(f"SELECT {', '.join(columns)} FROM raw_events ORDER BY position")


def event_column(column: str) -> Subquery:
    """Return a column of the event that created an entity, for ``annotate`` and ``filter``."""
    return Subquery(events().filter(position=OuterRef("id")).order_by().values(column)[:1])


def replay(selection: EventQuerySet) -> Iterator[str]:
    """Yield one line of canonical JSON per event: the same bytes on every run."""
    for event in selection.iterator(_BATCH):
        yield canonical_json(described(event))


def described(row: StoredEvent) -> dict[str, Any]:
    payload = None if row.payload_json is None else json.loads(row.payload_json)
    values = {name: getattr(row, name) for name in (*HEADER, "payload_digest", "chain_digest")}
    return dict(sorted({**values, "payload": payload}.items()))


class EventColumns(Protocol):
    """An event with all columns of the log as attributes, from wherever it was read."""

    @property
    def position(self) -> int: ...
    @property
    def chain_digest(self) -> str: ...


def event_of(row: EventColumns) -> Event[Any]:
    """Return the event of a row, with its payload in the current schema version; None once erased."""
    return _parse_event(tuple(getattr(row, name) for name in _COLUMNS))


def read_all(*, after: int = 0) -> Iterator[Event[Any]]:
    """Yield all events after a position, at half the cost of ``events``."""
    while batch := rows.fetch(_READ_NEXT, [after, _BATCH]):
        yield from map(_parse_event, batch)
        after = batch[-1][0]


_COLUMNS = (
    "position event_id event_type event_version stream_id stream_seq session_id turn_id actor source occurred_at "
    "payload_json"
).split()
_READ_NEXT = f"SELECT {', '.join(_COLUMNS)} FROM raw_events WHERE position > %s ORDER BY position LIMIT %s"


def _parse_event(row: tuple[Any, ...]) -> Event[Any]:
    position, event_id, name, version, stream, seq, session, turn, actor, source, occurred, payload_json = row
    kind = event_type(name)
    if kind is None:
        raise LookupError(f"event #{position} is of type {name!r}, which this version does not know")
    payload = None if payload_json is None else kind.schema.model_validate_json(payload_json, context=STORED)
    return Event(position, event_id, name, version, stream, seq, session, turn, actor, source, occurred, payload)


def head(database: str = "main") -> tuple[int, str]:
    last = rows.fetch(f"SELECT position, chain_digest FROM {database}.raw_events ORDER BY position DESC LIMIT 1")
    return last[0] if last else (0, GENESIS)


def digest_at(position: int) -> str | None:
    digests = rows.fetch("SELECT chain_digest FROM raw_events WHERE position = %s", [position])
    return digests[0][0] if digests else None


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
    sql = f"SELECT max(position) FROM {database}.raw_events WHERE event_type IN ({_types_that_remove_text()})"
    return rows.fetch(sql)[0][0] or 0


def erased_after(position: int, database: str = "main") -> bool:
    # The indexes of a damaged file may lack an event (decision 32).
    sql = (
        f"SELECT 1 FROM {database}.raw_events {NOT_INDEXED} WHERE position > %s "
        f"AND event_type IN ({_types_that_remove_text()}) LIMIT 1"
    )
    return bool(rows.fetch(sql, [position]))


def _types_that_remove_text() -> str:
    return quoted(names_where(lambda event_type: event_type.removes_text))


# Payload fields that describe what an event is about, the best first.
_TITLE_FIELDS = (
    "title purpose content message command path tool subject phase description summary outcome reason detail turn_id "
    "sha name relation type"
).split()


def timeline_entry(event: StoredEvent, title: str | None = None) -> dict[str, Any]:
    return {
        "position": event.position,
        "type": event.event_type,
        "id": entity_of(event),
        "title": title or main_text(json.loads(event.payload_json or "{}")),
        "occurred_at": event.occurred_at,
        "actor": event.actor,
        "source": event.source,
        "session_id": event.session_id,
        "turn_id": event.turn_id,
    }


def entity_of(event: StoredEvent) -> int:
    """Return the id of the entity that the event is about, or the event's own position."""
    return entity_of_stream(event.stream_id, event.position)


def entity_of_stream(stream: str, position: int) -> int:
    """Return the id of a stream's entity, or the position of its event if it has none."""
    _, _, tail = stream.partition(":")
    return int(tail) if tail.isdigit() else position


def main_text(payload: Mapping[str, Any]) -> str:
    for name in _TITLE_FIELDS:
        text = payload.get(name)
        if text and isinstance(text, str):
            return first_line(text)
    return ""
