"""Imports from other tools: their batches, and what they have brought.

The events of a batch have the batch in their header's trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Min, QuerySet

from governance.events import IMPORT_BEGAN, IMPORT_ENDED, IMPORT_UNDONE, ImportBegan, ImportEnded
from memories.events import MEMORY_WRITTEN
from memories.models import Memory, MemoryTag
from memories.models.memory import MemoryQuerySet
from memoryhub.core import clock, log
from memoryhub.core.errors import NotFound
from memoryhub.core.events.event_types import EventType
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import Origin, use_origin
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.core.text import counted, flat, shortened
from sessions_app.events import SESSION_STARTED
from sessions_app.events.sessions import TURN_BEGAN
from sessions_app.models import Session, Turn

# Begins the trace of a batch's events; its position follows
TRACE = "import:"
_MAX_PLACE = 1_000
_MOST_TAGS = 10


@dataclass(frozen=True, slots=True)
class Batch:
    """One import into the current store; ``id`` is the position of the event that began it."""

    id: int
    tool: str
    place: str
    actor: str
    began_at: datetime
    # None if it was interrupted
    counts: dict[str, int] | None
    is_undone: bool
    # Position of the event that ended it, 0 if it was interrupted
    ended: int = 0


def batch_of_trace(trace_id: str) -> int:
    """Return the import that an event belongs to by the trace in its header, 0 for none."""
    number = trace_id.removeprefix(TRACE)
    return int(number) if number != trace_id and number.isdecimal() else 0


def trace_of(batch: int) -> str:
    """Return the trace of the events of an import."""
    return f"{TRACE}{batch}"


def begin_import(*, tool: str, place: str) -> int:
    """Begin an import into the current store, and return its id."""
    demand(Act.WRITE)
    draft = log.prepare(IMPORT_BEGAN, ImportBegan(tool=tool, place=shortened(flat(place), _MAX_PLACE)))
    with log.transaction():
        return log.append(draft, entity="import").position


@contextmanager
def in_batch(tool: str, batch: int) -> Iterator[None]:
    """Mark the events that are written inside as those of an import."""
    with use_origin(source="import", actor=f"import:{tool}", trace_id=trace_of(batch)):
        yield


def end_import(batch: int, counts: dict[str, int]) -> None:
    draft = log.prepare(IMPORT_ENDED, ImportEnded(batch=batch, counts=counts))
    with log.transaction():
        log.append(draft, stream=f"{TRACE}{batch}")


@dataclass
class ImportRun:
    """An import that becomes a batch with its first event, so that one that changes nothing leaves no trace."""

    tool: str
    place: str
    store: StoreId
    batch: int | None = None
    _head: object = None
    _is_written: bool = False

    def begin(self) -> int:
        """Return the batch; in an open transaction of the log."""
        head = log.open_head()
        # A transaction that was rolled back took its batch with it
        if self.batch is None or not (self._is_written or head is self._head):
            self._head = head
            self.batch = begin_import(tool=self.tool, place=self.place)
            log.before_commit(self._keep)
        return self.batch

    def _keep(self) -> None:
        self._is_written = True

    def end(self, counts: dict[str, int]) -> int | None:
        """Record the counts and return the batch; None if nothing was written."""
        if self.batch is None or not self._is_written:
            return None
        end_import(self.batch, {name: count for name, count in counts.items() if count})
        return self.batch


_run: ContextVar[ImportRun | None] = ContextVar("import_run", default=None)


@contextmanager
def recorded_import(*, tool: str, place: str) -> Iterator[ImportRun]:
    """Make what is written to the current store inside one batch, which can be undone."""
    run = ImportRun(tool, place, current_store())
    token = _run.set(run)
    try:
        yield run
    finally:
        _run.reset(token)


@log.guard
def _mark(_: EventType[Any], origin: Origin) -> Origin:
    run = _run.get()
    if run is None or run.store != current_store():
        return origin
    token = _run.set(None)
    try:
        return replace(origin, trace_id=trace_of(run.begin()))
    finally:
        _run.reset(token)


@contextmanager
def preview_only() -> Iterator[None]:
    """Undo all that is written to the current store inside: what an import would do is what it did."""
    with suppress(_Previewed), log.transaction():
        yield
        raise _Previewed


class _Previewed(Exception):
    pass


def list_batches() -> list[Batch]:
    """Return the imports into the current store, newest first."""
    wanted = [known.name for known in (IMPORT_BEGAN, IMPORT_ENDED, IMPORT_UNDONE)]
    events = RawEvent.objects.filter(event_type__in=wanted).order_by("position")
    began: dict[int, RawEvent] = {}
    ended: dict[int, tuple[int, dict[str, int]]] = {}
    undone: set[int] = set()
    for event in events:
        payload = json.loads(event.payload_json or "{}")
        if event.event_type == IMPORT_BEGAN.name:
            began[event.position] = event
        elif event.event_type == IMPORT_ENDED.name:
            ended[payload["batch"]] = (event.position, payload["counts"])
        else:
            undone.add(payload["batch"])
    return [
        _batch(event, *ended.get(position, (0, None)), is_undone=position in undone)
        for position, event in sorted(began.items(), reverse=True)
    ]


def _batch(event: RawEvent, ended: int, counts: dict[str, int] | None, *, is_undone: bool) -> Batch:
    payload = json.loads(event.payload_json or "{}")
    when = clock.from_text(event.occurred_at)
    place = payload.get("place", "")
    return Batch(event.position, payload.get("tool", ""), place, event.actor, when, counts, is_undone, ended)


@dataclass(frozen=True, slots=True)
class Gain:
    """What an import has brought, as far as it is still there."""

    # Names of kinds with their numbers, the most first
    kinds: dict[str, int]
    # The ten most frequent
    tags: dict[str, int]
    sessions: int
    turns: int
    # When the tool wrote the memories; None without any
    oldest: datetime | None
    newest: datetime | None

    @property
    def memories(self) -> int:
        return sum(self.kinds.values())


def gain_of(batch: Batch) -> Gain:
    """Count what is in the store because of an import."""
    memories = imported_memories(batch)
    period = memories.aggregate(oldest=Min("created_at"), newest=Max("created_at"))
    kinds = memories.values_list("kind").annotate(count=Count("id")).order_by("-count", "kind")
    tags = MemoryTag.objects.filter(memory_id__in=memories.values("id"))
    most = tags.values_list("tag").annotate(count=Count("memory_id")).order_by("-count", "tag")[:_MOST_TAGS]
    return Gain(
        dict(kinds),
        dict(most),
        Session.objects.filter(id__in=_positions(batch, SESSION_STARTED)).count(),
        Turn.objects.filter(id__in=_positions(batch, TURN_BEGAN)).count(),
        **period,
    )


def imported_memories(batch: Batch) -> MemoryQuerySet:
    """Return the memories that an import created and nobody has deleted since."""
    found: MemoryQuerySet = Memory.objects.live().filter(id__in=_positions(batch, MEMORY_WRITTEN))
    return found


def _positions(batch: Batch, event_type: EventType[Any]) -> QuerySet[RawEvent, Any]:
    return events_of(batch).filter(event_type=event_type.name).values("position")


def events_of(batch: Batch) -> QuerySet[RawEvent]:
    events = RawEvent.objects.filter(position__gt=batch.id, trace_id=trace_of(batch.id))
    # The log has no index of traces
    return events.filter(position__lt=batch.ended) if batch.ended else events


# (one, several), in the order of a sentence; of counts that are no nouns, both are the same
_COUNTED = {
    "created": ("new", "new"),
    "revised": ("revised", "revised"),
    "unchanged": ("unchanged", "unchanged"),
    "duplicates": ("exact copy", "exact copies"),
    "conflicts": ("changed here too", "changed here too"),
    "deleted": ("deleted here", "deleted here"),
    "sessions": ("session", "sessions"),
    "sessions_extended": ("session with more turns", "sessions with more turns"),
    "sessions_known": ("known session", "known sessions"),
    "relations": ("relation", "relations"),
    "removed": ("removed", "removed"),
    "replaced": ("note of the same text removed", "notes of the same texts removed"),
    "left_out_count": ("left out", "left out"),
}
COUNTED = tuple(_COUNTED)


def counts_text(counts: Mapping[str, int] | None) -> str:
    """Return what became of the records of an import: "12 new, 3 exact copies, 1 left out"."""
    found = counts or {}
    return ", ".join(counted(found[name], *nouns) for name, nouns in _COUNTED.items() if found.get(name))


def find_batch(batch_id: int) -> Batch:
    """Return an import of the current store.

    Raises:
        NotFound: there is none with this number.
    """
    found = next((batch for batch in list_batches() if batch.id == batch_id), None)
    if found is None:
        raise NotFound(f"there is no import #{batch_id}; `memory-hub import list` lists them", id=batch_id)
    return found
