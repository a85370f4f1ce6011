"""Imports from other tools: batches, and their undo.

The events of a batch have the batch in their header's trace. An undo names the positions that count no more, and the
read models are built again without them: as if the batch had never been, except what others have built on since.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from pydantic import Field

from governance.rollback.downstream import find_downstream
from governance.rollback.effects import in_groups, touched_by
from governance.rollback.selectors import Header, Selected
from memories.models import Relation
from memoryhub.core import clock, log
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import Conflict, NotFound, PreconditionFailed
from memoryhub.core.events.event_types import define_governance_event
from memoryhub.core.events.projection import define_void
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import Act, demand
from memoryhub.core.schemas import EventRef, EventRefs, Payload
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS

# Begins the trace of a batch's events; its position follows
TRACE = "import:"
# Kept items that an undo names; all of them are kept
_MOST_NAMED = 50
_LATER = (
    f"SELECT DISTINCT stream_id FROM raw_events WHERE position > %s AND stream_id IN {TEXTS} AND position NOT IN {IDS}"
)


class ImportBegan(Payload):
    # Of the tool: ``claude-mem``
    tool: str = Field(min_length=1, max_length=64)
    # The file or folder
    place: str = Field("", max_length=1_000)


class ImportEnded(Payload):
    batch: EventRef
    # What became of the records: ``created``, ``revised``, ``unchanged``, …
    counts: dict[str, int] = Field(default_factory=dict)


class ImportUndone(Payload):
    batch: EventRef
    # Events that count no more
    void: EventRefs = Field(default_factory=list)
    kept: EventRefs = Field(default_factory=list)


IMPORT_BEGAN = define_governance_event("import.began", ImportBegan, label="Import began", act=Act.WRITE)
IMPORT_ENDED = define_governance_event("import.ended", ImportEnded, label="Import ended", act=Act.WRITE)
IMPORT_UNDONE = define_governance_event("import.undone", ImportUndone, label="Import undone", removes_text=True)


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


@dataclass(frozen=True, slots=True)
class Kept:
    id: int
    title: str
    # "revised since", "#412 builds on it"
    why: str


@dataclass(frozen=True, slots=True)
class Undo:
    """What an undo would do. ``token`` confirms it."""

    batch: Batch
    events: int
    # How many items of each type disappear: ``{"memory": 12}``
    items: dict[str, int]
    void: list[int]
    kept: list[Kept]
    token: str


@contextmanager
def import_batch(*, tool: str, place: str) -> Iterator[int]:
    """Begin an import, and give its id; events that are written inside belong to it."""
    demand(Act.WRITE)
    with use_origin(source="import", actor=f"import:{tool}"):
        draft = log.prepare(IMPORT_BEGAN, ImportBegan(tool=tool, place=place))
        with log.transaction():
            batch = log.append(draft, entity="import").position
        with use_origin(trace_id=f"{TRACE}{batch}"):
            yield batch


def end_import(batch: int, counts: dict[str, int]) -> None:
    draft = log.prepare(IMPORT_ENDED, ImportEnded(batch=batch, counts=counts))
    with log.transaction():
        log.append(draft, stream=f"{TRACE}{batch}")


def list_batches() -> list[Batch]:
    """Return the imports into the current store, newest first."""
    wanted = [known.name for known in (IMPORT_BEGAN, IMPORT_ENDED, IMPORT_UNDONE)]
    events = RawEvent.objects.filter(event_type__in=wanted).order_by("position")
    began: dict[int, RawEvent] = {}
    counts: dict[int, dict[str, int]] = {}
    undone: set[int] = set()
    for event in events:
        payload = json.loads(event.payload_json or "{}")
        if event.event_type == IMPORT_BEGAN.name:
            began[event.position] = event
        elif event.event_type == IMPORT_ENDED.name:
            counts[payload["batch"]] = payload["counts"]
        else:
            undone.add(payload["batch"])
    return [
        _batch(event, counts.get(position), is_undone=position in undone)
        for position, event in sorted(began.items(), reverse=True)
    ]


def _batch(event: RawEvent, counts: dict[str, int] | None, *, is_undone: bool) -> Batch:
    payload = json.loads(event.payload_json or "{}")
    when = clock.from_text(event.occurred_at)
    place = payload.get("place", "")
    return Batch(event.position, payload.get("tool", ""), place, event.actor, when, counts, is_undone)


def find_batch(batch_id: int) -> Batch:
    """Return an import of the current store.

    Raises:
        NotFound: there is none with this number.
    """
    found = next((batch for batch in list_batches() if batch.id == batch_id), None)
    if found is None:
        raise NotFound(f"there is no import #{batch_id}; `memory-hub import list` lists them", id=batch_id)
    return found


def preview_undo(batch_id: int) -> Undo:
    """Return what an undo of an import would do; changes nothing.

    Raises:
        NotFound: there is no such import.
        Conflict: it was undone already.
    """
    batch = find_batch(batch_id)
    if batch.is_undone:
        raise Conflict(f"import #{batch.id} was undone already", id=batch.id)
    headers = _headers(batch)
    kept = _kept(headers)
    stay = {*kept, *_kept_relations(headers, kept)}
    void = [header for header in headers if header.entity not in stay]
    positions = [header.position for header in void]
    created = {header.stream for header in headers if header.stream.endswith(f":{header.position}")}
    items = Counter(header.stream.partition(":")[0] for header in void if header.stream in created)
    token = hashlib.sha256(json.dumps([batch.id, positions]).encode()).hexdigest()[:16]
    return Undo(batch, len(void), dict(items), positions, list(kept.values())[:_MOST_NAMED], token)


def undo_import(*, batch_id: int, token: str) -> Undo:
    """Make an import undone, as it was previewed.

    Raises:
        NotFound, Conflict: as ``preview_undo``.
        PreconditionFailed: the store has changed since the preview; the data has the new ``token``.
    """
    demand(Act.GOVERN)
    with log.transaction():
        plan = preview_undo(batch_id)
        if plan.token != token:
            raise PreconditionFailed(
                "the store has changed since the preview; look again, and confirm", token=plan.token
            )
        kept = [item.id for item in plan.kept]
        undone = ImportUndone(batch=batch_id, void=plan.void, kept=kept)
        log.append(log.prepare(IMPORT_UNDONE, undone), stream=f"{TRACE}{batch_id}")
    log.rebuild()
    return plan


@define_void
def _void_positions() -> Iterator[int]:
    found = rows.fetch(
        "SELECT payload_json FROM raw_events WHERE event_type = %s AND payload_json IS NOT NULL", [IMPORT_UNDONE.name]
    )
    for (payload,) in found:
        yield from json.loads(payload)["void"]


def _headers(batch: Batch) -> list[Header]:
    events = RawEvent.objects.filter(position__gt=batch.id, trace_id=f"{TRACE}{batch.id}").order_by("position")
    found = events.exclude(event_type=IMPORT_ENDED.name)
    return [Header(*row) for row in found.values_list("position", "event_type", "stream_id", "session_id")]


# What others have built on since, by the id of the item
def _kept(headers: Sequence[Header]) -> dict[int, Kept]:
    by_type: dict[str, list[Header]] = {}
    for header in headers:
        by_type.setdefault(header.type, []).append(header)
    selected = Selected(list(headers), by_type)
    direct = touched_by(selected)
    touched = {thing.id for thing in in_groups(direct, lambda _: True)}
    downstream = find_downstream(direct, selected)
    why = dict.fromkeys(_changed_since(headers), "changed since")
    for name, text in (("built_on", "#{} builds on it"), ("relations", "relation #{} was added")):
        for derived in downstream.groups[name]:
            if derived.via in touched and derived.id not in touched:
                why.setdefault(derived.via, text.format(derived.id))
    titles = {entity.id: entity.title for entity in find_entities(why).values()}
    return {entity: Kept(entity, titles.get(entity, ""), reason) for entity, reason in sorted(why.items())}


def _changed_since(headers: Sequence[Header]) -> set[int]:
    streams = {header.stream: header.entity for header in headers}
    own = [header.position for header in headers]
    later = rows.fetch(_LATER, [own[0], json.dumps(sorted(streams)), json.dumps(own)]) if own else ()
    return {streams[stream] for (stream,) in later}


# Relations of the batch go with an end that goes
def _kept_relations(headers: Sequence[Header], kept: Collection[int]) -> set[int]:
    relations = [header.entity for header in headers if header.stream.startswith("relation:")]
    ends = Relation.objects.filter(id__in=relations).values_list("id", "source_id", "target_id")
    return {relation for relation, source, target in ends if source in kept and target in kept}
