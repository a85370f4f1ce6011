from __future__ import annotations

from collections.abc import Collection
from typing import Any

from memories.events import (
    AMENDMENT_FOUND,
    AMENDMENT_JUDGED,
    ENTRY_ANCHORED,
    MEMORY_REVISED,
    MEMORY_WRITTEN,
    AmendmentFound,
    AmendmentJudged,
    AnchorRecord,
    EntryAnchored,
    MemoryRevised,
    MemoryWritten,
    ProvenanceRecord,
)
from memories.models import Amendment, CodeAnchor
from memories.validity.events import CHECK_ALLOWED, CHECK_RAN, CheckAllowed, CheckRan
from memories.validity.models import CheckState, Provenance
from memoryhub.core import log
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.log.quarantine import (
    QUARANTINE_LIFTED,
    QUARANTINE_PLACED,
    QuarantineLifted,
    QuarantinePlaced,
    outside_quarantine,
    quarantined_among,
)
from memoryhub.core.log.read import entity_of
from memoryhub.core.stores import rows


def store_provenance(entity_id: int, record: ProvenanceRecord | None) -> None:
    """Write the provenance and the anchors of a new entry or a new text; needs an open transaction of the log."""
    if record is None:
        return
    if record.commit:
        rows.execute("DELETE FROM memories_provenance WHERE id = %s", [entity_id])
        rows.insert(Provenance, id=entity_id, commit=record.commit, branch=record.branch, has_edits=record.has_edits)
    _store_anchors(entity_id, record.anchors)


def _store_anchors(entity_id: int, anchors: list[AnchorRecord]) -> None:
    rows.execute("DELETE FROM memories_codeanchor WHERE entity_id = %s", [entity_id])
    for number, anchor in enumerate(anchors):
        rows.insert(CodeAnchor, entity_id=entity_id, number=number, **anchor.model_dump())


def provenances_up_to(streams: Collection[str], position: int | None) -> dict[int, ProvenanceRecord]:
    """Map entries to where they were learnt and the code that they were about at a position of the log.

    Args:
        streams: of memories and decisions.
        position: None for now.
    """
    events = list(log.events().of_stream(*streams).window(up_to=position).readable())
    aside = quarantined_among([stored.position for stored in events])
    records: dict[int, ProvenanceRecord] = {}
    for stored in events:
        entity_id = entity_of(stored)
        # An entry that is set aside is about the same code as before
        if stored.position in aside and stored.position != entity_id:
            continue
        payload = log.event_of(stored).payload
        record = getattr(payload, "provenance", None)
        if isinstance(payload, EntryAnchored):
            record = ProvenanceRecord(anchors=payload.anchors)
        if record is not None and not record.commit and entity_id in records:
            record = records[entity_id].model_copy(update={"anchors": record.anchors})
        if record is not None:
            records[entity_id] = record
    return records


@projects(MEMORY_WRITTEN)
def locate_memory(event: Event[MemoryWritten]) -> None:
    store_provenance(event.position, event.payload.provenance)


@projects(MEMORY_REVISED)
def relocate_memory(event: Event[MemoryRevised]) -> None:
    store_provenance(event.payload.memory_id, event.payload.provenance)
    _forget_amendments(event.payload)


# What was found about the text of the version before
def _forget_amendments(payload: MemoryRevised) -> None:
    memory = payload.memory_id
    about = "(newer_id = %s OR older_id = %s) AND (is_accepted IS NULL OR is_accepted)"
    if not rows.fetch(f"SELECT 1 FROM memories_amendment WHERE {about}", [memory, memory]):
        return
    before = rows.column(
        "SELECT id FROM memories_memoryversion WHERE memory_id = %s AND version = %s", [memory, payload.version - 1]
    )
    for state in log.events().at(before).payloads().values():
        if (state["title"], state["content"]) == (payload.title, payload.content):
            return
    rows.execute(f"DELETE FROM memories_amendment WHERE {about}", [memory, memory])


@projects(ENTRY_ANCHORED)
def anchor_entry(event: Event[EntryAnchored]) -> None:
    _store_anchors(event.payload.entity_id, event.payload.anchors)


@projects(AMENDMENT_FOUND)
def add_amendment(event: Event[AmendmentFound]) -> None:
    payload = event.payload
    rows.execute(
        "DELETE FROM memories_amendment WHERE newer_id = %s AND older_id = %s", [payload.newer_id, payload.older_id]
    )
    rows.insert(Amendment, id=event.position, is_accepted=None, created_at=event.occurred_at, **payload.model_dump())


@projects(AMENDMENT_JUDGED)
def judge_amendment(event: Event[AmendmentJudged]) -> None:
    rows.update(Amendment, event.payload.amendment_id, is_accepted=event.payload.is_accepted)


@projects(PAYLOAD_ERASED)
def forget_amendments(event: Event[PayloadErased]) -> None:
    for entity_id in _entries_of(event.payload.streams).values():
        rows.execute("DELETE FROM memories_amendment WHERE newer_id = %s OR older_id = %s", [entity_id, entity_id])


@projects(CHECK_ALLOWED)
def allow_check(event: Event[CheckAllowed]) -> None:
    _put(event, seal=event.payload.seal, allowed_by=event.actor, allowed_at=event.occurred_at)


@projects(CHECK_RAN)
def keep_result(event: Event[CheckRan]) -> None:
    payload = event.payload
    _put(
        event,
        outcome=payload.outcome,
        file=payload.file,
        exit_code=payload.exit_code,
        seconds=payload.seconds,
        commit=payload.commit,
        output="\n".join(payload.lines),
        ran_by=event.actor,
        ran_at=event.occurred_at,
    )


def _put(event: Event[Any], **columns: Any) -> None:
    payload = event.payload
    key = [payload.entity_id, payload.digest]
    if rows.fetch("SELECT 1 FROM memories_checkstate WHERE entity_id = %s AND digest = %s", key):
        CheckState.objects.filter(entity_id=payload.entity_id, digest=payload.digest).update(**columns)
    else:
        rows.insert(CheckState, entity_id=payload.entity_id, digest=payload.digest, text=payload.text, **columns)


@projects(QUARANTINE_PLACED, QUARANTINE_LIFTED)
def settle_entries(event: Event[QuarantinePlaced | QuarantineLifted]) -> None:
    _replay(_streams_of(event.payload.ids), event)


@projects(PAYLOAD_ERASED)
def forget_erased(event: Event[PayloadErased]) -> None:
    _replay(_streams_of(event.payload.positions).union(event.payload.streams), event)


# What is set aside or erased while its entry stays
_SET_ASIDE = (CHECK_ALLOWED, CHECK_RAN, ENTRY_ANCHORED, "thing.affirmed")


def _streams_of(positions: Collection[int]) -> set[str]:
    events = log.events().at(positions).of_type(*_SET_ASIDE)
    return set(events.order_by().values_list("stream_id", flat=True))


def _entries_of(streams: Collection[str]) -> dict[str, int]:
    entries = [stream for stream in streams if stream.startswith(("memory:", "decision:"))]
    return {stream: int(stream.partition(":")[2]) for stream in entries}


# The rows of some entries, from their events that count
def _replay(streams: Collection[str], before: Event[Any]) -> None:
    entries = _entries_of(streams)
    if not entries:
        return
    ids = list(entries.values())
    CheckState.objects.filter(entity_id__in=ids).delete()
    CodeAnchor.objects.filter(entity_id__in=ids).delete()
    Provenance.objects.filter(id__in=ids).delete()
    for entity_id, record in provenances_up_to(entries, before.position - 1).items():
        store_provenance(entity_id, record)
    events = log.events().of_stream(*entries).of_type(CHECK_ALLOWED, CHECK_RAN).window(up_to=before.position - 1)
    for stored in outside_quarantine(events.readable()):
        event = log.event_of(stored)
        if event.type == CHECK_ALLOWED.name:
            allow_check(event)
        else:
            keep_result(event)
