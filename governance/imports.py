"""Imports from other tools: their batches, what they have brought, and their undo.

The events of a batch have the batch in their header's trace.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.db.models import Count, Max, Min, QuerySet

from governance.events import IMPORT_BEGAN, IMPORT_ENDED, IMPORT_UNDONE, ImportBegan, ImportEnded, ImportUndone
from governance.rollback.selectors import EventHeader, SelectedEvents
from governance.rollback.tracing import find_downstream, touched_by, touched_things
from memories.events import MEMORY_WRITTEN
from memories.models import Memory, MemoryQuerySet, MemoryTag, Relation
from memoryhub import env
from memoryhub.core import clock, log
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import ConflictError, NotFound, PreconditionFailed
from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.projection import void_sql
from memoryhub.core.file_locks import is_locked, lock
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import Origin, current_origin, use_origin
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.core.text import counted, flat, shortened
from sessions_app.events import COMMIT_RECORDED, SESSION_STARTED, TURN_BEGAN
from sessions_app.models import Session, Turn

# Begins the trace of a batch's events; its position follows
TRACE = "import:"
_MAX_PLACE = 1_000
_MOST_TAGS = 10
# A look at the lock takes it for a moment
_LOCK_SECONDS = 1.0


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
    # Whether a process of this machine still writes it
    is_running: bool = False

    @property
    def state(self) -> str:
        """``undone``, ``running`` or ``interrupted``; "" for one that has ended."""
        if self.is_undone:
            return "undone"
        if self.is_running:
            return "running"
        return "interrupted" if self.counts is None else ""


def batch_of_trace(trace_id: str) -> int:
    """Return the import that an event belongs to by the trace in its header, 0 for none."""
    number = trace_id.removeprefix(TRACE)
    if number == trace_id or not number.isdecimal():
        return 0
    return int(number)


def trace_of(batch: int) -> str:
    return f"{TRACE}{batch}"


@dataclass
class ImportRun:
    """An import that becomes a batch with its first event, so that one that changes nothing leaves no trace."""

    tool: str
    place: str
    store: StoreId = field(default_factory=current_store)
    origin: Origin = field(default_factory=current_origin)
    # The number of the batch; of an earlier process if the import continues it
    batch: int | None = None
    _head: object = None
    _is_written: bool = False

    def __post_init__(self) -> None:
        self.is_continued = self._is_written = self.batch is not None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Make what is written to the store inside one batch, which can be undone."""
        token = _run.set(self)
        try:
            yield
        finally:
            _run.reset(token)

    def begin(self) -> int:
        """Return the batch; in an open transaction of the log.

        Raises:
            ConflictError: the batch is continued, and was undone since.
        """
        head = log.open_head()
        if self.is_continued:
            self._require_present()
        # A transaction that was rolled back took its batch with it
        if self.batch is None or not (self._is_written or head is self._head):
            demand(Act.WRITE)
            self._head = head
            began = ImportBegan(tool=self.tool, place=shortened(flat(self.place), _MAX_PLACE))
            with use_origin(**asdict(self.origin)):
                self.batch = log.append(log.prepare(IMPORT_BEGAN, began), entity="import").position
            log.before_commit(self._note_commit)
        return self.batch

    # Another process may undo what this one still writes
    def _require_present(self) -> None:
        if log.events().of_stream(trace_of(self.batch or 0)).of_type(IMPORT_UNDONE).exists():
            raise ConflictError(f"import #{self.batch} was undone meanwhile, so it does not go on", id=self.batch)

    def _note_commit(self) -> None:
        self._is_written = True

    def end(self, counts: dict[str, int]) -> int | None:
        """Record the counts and return the batch; None if nothing was written."""
        if self.batch is None or not self._is_written:
            return None
        counts = {name: count for name, count in counts.items() if count}
        draft = log.prepare(IMPORT_ENDED, ImportEnded(batch=self.batch, counts=counts))
        with log.transaction():
            log.append(draft, stream=f"{TRACE}{self.batch}")
        return self.batch


_run: ContextVar[ImportRun | None] = ContextVar("import_run", default=None)


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
    batches: dict[int, Batch] = {}
    for event in log.events().of_type(IMPORT_BEGAN, IMPORT_ENDED, IMPORT_UNDONE):
        payload = json.loads(event.payload_json or "{}")
        if event.event_type == IMPORT_BEGAN.name:
            batches[event.position] = Batch(
                id=event.position,
                tool=payload.get("tool", ""),
                place=payload.get("place", ""),
                actor=event.actor,
                began_at=clock.from_text(event.occurred_at),
                counts=None,
                is_undone=False,
            )
            continue
        batch = batches.get(payload["batch"])
        if batch and event.event_type == IMPORT_ENDED.name:
            batches[batch.id] = replace(batch, counts=payload["counts"], ended=event.position)
        elif batch:
            batches[batch.id] = replace(batch, is_undone=True)
    newest_first = sorted(batches.values(), key=lambda batch: -batch.id)
    if newest_first and newest_first[0].counts is None and is_locked(str(_lock_path())):
        newest_first[0] = replace(newest_first[0], is_running=True)
    return newest_first


def _lock_path() -> Path:
    return env.home() / "run" / f"import-{current_store().alias.replace(':', '-')}"


def note_complete_look(began: datetime) -> None:
    """Note on this machine when an import began that has looked at everything, whether something was new or not."""
    with suppress(FileNotFoundError):
        os.utime(_lock_path(), (began.timestamp(), began.timestamp()))


def last_complete_look() -> datetime | None:
    """Return when the last import began that has looked at everything; None if it is not known here."""
    try:
        return datetime.fromtimestamp(_lock_path().stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


@contextmanager
def hold_imports() -> Iterator[None]:
    """Keep other processes of this machine from importing into the current store in the same way meanwhile.

    Raises:
        ConflictError: another one does it now.
    """
    path = _lock_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock(descriptor, seconds=_LOCK_SECONDS):
            raise ConflictError(f"another import into {current_store().name} is running; wait until it has ended")
        yield
    finally:
        os.close(descriptor)


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
    memories: MemoryQuerySet = Memory.objects.live().filter(id__in=_positions(batch, MEMORY_WRITTEN))
    return memories


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
    "replaced": ("memory of the same text removed", "memories of the same texts removed"),
    "left_out_count": ("left out", "left out"),
}
COUNTED = tuple(_COUNTED)


def counts_text(counts: Mapping[str, int] | None) -> str:
    """Return what became of the records of an import: "12 new, 3 exact copies, 1 left out"."""
    numbers = counts or {}
    return ", ".join(counted(numbers[name], *nouns) for name, nouns in _COUNTED.items() if numbers.get(name))


def find_batch(batch_id: int) -> Batch:
    """Return an import of the current store.

    Raises:
        NotFound: there is none with this number.
    """
    for batch in list_batches():
        if batch.id == batch_id:
            return batch
    raise NotFound(f"there is no import #{batch_id}; `memory-hub import list` lists them", id=batch_id)


# Kept items that an undo names; all of them are kept
_MOST_NAMED = 50
_ITEMS = {"memory": ("memory", "memories")}
# By what is not of the batch, and counts
_LATER = (
    f"SELECT DISTINCT {{column}} FROM raw_events WHERE position > %s AND {{column}} IN {TEXTS} "
    f"AND position NOT IN {IDS} AND position NOT IN ({{void}})"
)
# Beside entities whose stream has their number
_CREATES = {SESSION_STARTED.name, TURN_BEGAN.name, COMMIT_RECORDED.name}


@dataclass(frozen=True, slots=True)
class KeptItem:
    id: int
    title: str
    # "revised since", "#412 builds on it"
    why: str


@dataclass(frozen=True, slots=True)
class ImportUndo:
    """What an undo would do. ``token`` confirms it."""

    batch: Batch
    events: int
    # How many items of each type disappear: ``{"memory": 12}``
    items: dict[str, int]
    void: list[int]
    kept_items: list[KeptItem]
    token: str

    @property
    def items_text(self) -> str:
        """The items that disappear: "12 memories, 1 session"."""
        return ", ".join(counted(count, *_ITEMS.get(name, (name,))) for name, count in self.items.items())


def preview_undo(batch_id: int) -> ImportUndo:
    """Return what an undo of an import would do; changes nothing.

    Raises:
        NotFound: there is no such import.
        ConflictError: it was undone already.
    """
    batch = find_batch(batch_id)
    if batch.is_undone:
        raise ConflictError(
            f"import #{batch.id} was undone already; if that was interrupted, `memory-hub rebuild` completes it",
            id=batch.id,
        )
    headers = _headers(batch)
    sessions = _written_since(headers, "session_id", {_session_of(header) for header in headers} - {""})
    went_on = {}
    for header in headers:
        if header.type in _CREATES and header.stream.startswith("session:") and _session_of(header) in sessions:
            went_on[header.position] = "it went on since"
    outside = [header for header in headers if not _session_of(header)]
    reasons = _items_built_on(outside) | _kept_items(went_on)
    stay = {*reasons, *_relations_between(reasons, headers)}
    void = [header for header in headers if header.entity not in stay and _session_of(header) not in sessions]
    positions = [header.position for header in void]
    items = _created_items(void)
    token = hashlib.sha256(json.dumps([batch.id, positions]).encode()).hexdigest()[:16]
    return ImportUndo(batch, len(void), dict(items), positions, list(reasons.values())[:_MOST_NAMED], token)


def undo_import(*, batch_id: int, token: str, progress: Callable[[int], None] = lambda _: None) -> ImportUndo:
    """Make an import undone, as it was previewed.

    Raises:
        NotFound, ConflictError: as ``preview_undo``.
        PreconditionFailed: the store has changed since the preview; the data has the new ``token``.
    """
    demand(Act.GOVERN)
    with log.transaction():
        plan = preview_undo(batch_id)
        if plan.token != token:
            raise PreconditionFailed(
                "the store has changed since the preview; look again, and confirm", token=plan.token
            )
        kept_ids = [item.id for item in plan.kept_items]
        undone = ImportUndone(batch=batch_id, void=plan.void, kept=kept_ids)
        log.append(log.prepare(IMPORT_UNDONE, undone), stream=f"{TRACE}{batch_id}")
    log.rebuild(progress)
    return plan


def counts_of(batch_id: int) -> dict[str, int]:
    """Return the counts of an import by what its events have created in the current store."""
    items = _created_items(_headers(find_batch(batch_id)))
    sessions, relations = items.pop("session", 0), items.pop("relation", 0)
    del items["turn"]
    return {"created": items.total(), "sessions": sessions, "relations": relations}


# The number of items of each type, such as ``{"memory": 12}``
def _created_items(headers: Sequence[EventHeader]) -> Counter[str]:
    items: Counter[str] = Counter()
    for header in headers:
        if header.stream.endswith(f":{header.position}") or header.type in _CREATES:
            items[header.stream.partition(":")[0]] += 1
    return items


def _headers(batch: Batch) -> list[EventHeader]:
    events = events_of(batch).exclude(event_type=IMPORT_ENDED.name).order_by("position")
    return list(map(EventHeader._make, events.values_list("position", "event_type", "stream_id", "session_id")))


# The session whose story an event tells, "" if it is of a memory or a relation
def _session_of(header: EventHeader) -> str:
    if header.stream.startswith("turn:"):
        return header.session
    return header.stream.removeprefix("session:") if header.stream.startswith("session:") else ""


def _written_since(headers: Sequence[EventHeader], column: str, names: Collection[str]) -> set[str]:
    if not names:
        return set()
    positions = [header.position for header in headers]
    sql = _LATER.format(column=column, void=void_sql())
    return set(rows.column(sql, [positions[0], json.dumps(sorted(names)), json.dumps(positions)]))


def _kept_items(why: Mapping[int, str]) -> dict[int, KeptItem]:
    entities = find_entities(why)
    items = {}
    for entity_id, reason in why.items():
        title = entities[entity_id].title if entity_id in entities else ""
        items[entity_id] = KeptItem(entity_id, title, reason)
    return items


# What others have built on since, by the id of the item
def _items_built_on(headers: Sequence[EventHeader]) -> dict[int, KeptItem]:
    selected = SelectedEvents(list(headers))
    direct = touched_by(selected)
    touched = {thing.id for thing in touched_things(direct)}
    downstream = find_downstream(direct, selected)
    streams = {header.stream: header.entity for header in headers}
    why = {streams[stream]: "changed since" for stream in _written_since(headers, "stream_id", streams)}
    for name, text in (("built_on", "#{} builds on it"), ("relations", "relation #{} was added")):
        for derived in downstream[name]:
            # What was there before the import needs an item that the import created, but not its changes to older ones
            is_later = max(derived.id, derived.via) > headers[0].position
            if is_later and derived.via in touched and derived.id not in touched:
                why.setdefault(derived.via, text.format(derived.id))
    return _kept_items(dict(sorted(why.items())))


# Relations of the batch go with an end that goes
def _relations_between(ends: Collection[int], headers: Sequence[EventHeader]) -> set[int]:
    relations = [header.entity for header in headers if header.stream.startswith("relation:")]
    batch_relations = Relation.objects.filter(id__in=relations).values_list("id", "source_id", "target_id")
    return {relation for relation, source, target in batch_relations if source in ends and target in ends}
