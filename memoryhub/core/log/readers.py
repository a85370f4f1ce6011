"""Read events of the current store's log: by stream, session, turn, type, window and position.

``events()`` is all of them; each method narrows it and returns a query set of Django's, in the order of the log, so
``last()`` is the newest event. Outside ``core``, this is the way to the log: nothing else selects from its table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Self

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import RawSQL

from memoryhub.core.events.event_types import EventType
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, json_list
from memoryhub.core.stores.routing import require_current_alias

# A row of the log, with all its columns
StoredEvent = RawEvent


class EventQuerySet(QuerySet[StoredEvent, StoredEvent]):
    def at(self, positions: Iterable[int]) -> Self:
        """Events at any number of positions."""
        return self.filter(position__in=_listed(IDS, positions))

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

    def payloads(self) -> dict[int, dict[str, Any]]:
        """Return the payloads that were not erased, as JSON data by position."""
        texts = self.readable().values_list("position", "payload_json")
        return {position: json.loads(text or "{}") for position, text in texts}

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
        return self.filter(**{f"{column}__in": _listed(TEXTS, listed)})


def _listed(form: str, values: Iterable[int | str]) -> RawSQL:
    # One parameter for all values: a database limits their number
    return RawSQL(rows.rendered(form)[1:-1], [json_list(values)])  # noqa: S611 - a constant


def events() -> EventQuerySet:
    """Return all events of the current store, in the order of the log."""
    return EventQuerySet(RawEvent, using=require_current_alias()).order_by("position")


def event_column(column: str, *, at: str = "id") -> Subquery:
    """Return a column of the event at the position in a model's field ``at``, for ``annotate`` and ``filter``."""
    return Subquery(events().filter(position=OuterRef(at)).order_by().values(column)[:1])
