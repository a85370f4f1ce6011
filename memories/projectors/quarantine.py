"""What quarantine does to names and conflicts: a topic, a relation, a tag's description can be had by others meanwhile.

A memory in quarantine gives up its topic, and has it back when it is let out, unless another has it by then. Relations
and descriptions of tags have no text of their own to keep: they go, and are made again from the log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.db.models.expressions import RawSQL

from memories.events import (
    CONFLICT_RESOLVED,
    MEMORY_REVISED,
    RELATION_CREATED,
    RELATION_DELETED,
    TAG_CREATED,
    MemoryRevised,
    RelationCreated,
)
from memories.models import Memory, Relation, Tag
from memories.projectors.links import describe_tag, relate
from memories.projectors.memories import open_conflict, resolve
from memoryhub.core import log, rows
from memoryhub.core.entities import find_entities
from memoryhub.core.models import RawEvent
from memoryhub.core.projection import Event, projects
from memoryhub.core.quarantine import (
    OUTSIDE,
    QUARANTINE_LIFTED,
    QUARANTINE_PLACED,
    QuarantineLifted,
    QuarantinePlaced,
    quarantined_among,
)

_LISTED = "(SELECT value FROM json_each(%s))"
_TOPIC = (
    "(SELECT json_extract(e.payload_json, '$.topic_key') FROM memories_memoryversion v JOIN raw_events e "
    "ON e.position = v.id WHERE v.memory_id = memories_memory.id AND v.version = memories_memory.version)"
)
_REMOVED = (
    f"SELECT stream_id FROM raw_events WHERE stream_id IN {_LISTED} AND event_type = '{RELATION_DELETED.name}' "
    "AND position < %s"
)
# The conflicts that some events opened or resolved.
_DISPUTED = (
    "SELECT coalesce(json_extract(payload_json, '$.conflict_id'), position) FROM raw_events "
    f"WHERE position IN {_LISTED} AND payload_json IS NOT NULL "
    f"AND event_type IN ('{MEMORY_REVISED.name}', '{CONFLICT_RESOLVED.name}')"
)
_RESOLVED = (
    "SELECT max(position) FROM raw_events WHERE stream_id = %s AND position < %s AND payload_json IS NOT NULL "
    f"AND event_type = '{CONFLICT_RESOLVED.name}' AND json_extract(payload_json, '$.conflict_id') = %s "
    f"AND position {OUTSIDE}"
)


@projects(QUARANTINE_PLACED)
def give_up_names(event: Event[QuarantinePlaced]) -> None:
    """Let others have the topics, the relations and the tags."""
    ids = json.dumps(event.payload.ids)
    rows.execute(f"UPDATE memories_memory SET topic_key = NULL WHERE id IN {_LISTED}", [ids])
    for table in ("relation", "tag"):
        rows.execute(f"DELETE FROM memories_{table} WHERE id IN {_LISTED}", [ids])


@projects(QUARANTINE_LIFTED)
def take_names_back(event: Event[QuarantineLifted]) -> None:
    """Give back what nobody else has taken: ``OR IGNORE`` leaves a memory without its topic where another has it."""
    rows.execute(
        f"UPDATE OR IGNORE memories_memory SET topic_key = {_TOPIC} WHERE topic_key IS NULL AND id IN {_LISTED}",
        [json.dumps(sorted(event.payload.ids))],
    )
    gone = RawEvent.objects.filter(
        position__in=RawSQL(_LISTED, [json.dumps(event.payload.ids)]),  # noqa: S611 - a constant
        event_type__in=[RELATION_CREATED.name, TAG_CREATED.name],
        payload_json__isnull=False,
    )
    wanted = [log.event_of(each) for each in gone.order_by("position")]
    _make_again(wanted if event.version == 1 else _without_removed(wanted, event.position))


def _without_removed(events: Sequence[Event[Any]], before: int) -> list[Event[Any]]:
    """Leave out relations that were removed, and those of which an end was erased; the latest come first."""
    relations = [event for event in events if event.type == RELATION_CREATED.name]
    removed = {row[0] for row in rows.fetch(_REMOVED, [json.dumps([event.stream_id for event in relations]), before])}
    ends = find_entities(end for each in relations for end in _said(each.payload)[:2])
    kept = [
        event for event in relations if event.stream_id not in removed and set(_said(event.payload)[:2]) <= set(ends)
    ]
    return [*kept[::-1], *(event for event in events if event.type == TAG_CREATED.name)]


def _make_again(events: Sequence[Event[Any]]) -> None:
    tags = set(Tag.objects.values_list("name", flat=True)) if events else set()
    sources = [event.payload.source_id for event in events if event.type == RELATION_CREATED.name]
    same = Relation.objects.filter(source_id__in=sources) if sources else Relation.objects.none()
    related = set(same.values_list("source_id", "target_id", "relation"))
    for event in events:
        payload = event.payload
        if event.type == TAG_CREATED.name and payload.name not in tags:
            describe_tag(event)
        elif event.type == RELATION_CREATED.name and _said(payload) not in related:
            relate(event)
            related.add(_said(payload))


def _said(payload: RelationCreated) -> tuple[int, int, str]:
    return payload.source_id, payload.target_id, payload.relation


@projects(QUARANTINE_PLACED, QUARANTINE_LIFTED)
def settle_conflicts(event: Event[QuarantinePlaced | QuarantineLifted]) -> None:
    """Drop a conflict while the version that opened it is in quarantine, and reopen it while its resolution is."""
    disputed = {row[0] for row in rows.fetch(_DISPUTED, [json.dumps(event.payload.ids)])}
    aside = quarantined_among(sorted(disputed))
    for opened in RawEvent.objects.filter(position__in=disputed, payload_json__isnull=False).order_by("position"):
        rows.execute("DELETE FROM memories_conflict WHERE id = %s", [opened.position])
        if opened.position not in aside:
            _open_again(log.event_of(opened), event.position)


def _open_again(opened: Event[MemoryRevised], before: int) -> None:
    if opened.payload.conflicts_with is None or not Memory.objects.filter(id=opened.payload.memory_id).exists():
        return
    open_conflict(opened, opened.payload.conflicts_with)
    ((resolved,),) = rows.fetch(_RESOLVED, [opened.stream_id, before, opened.position])
    if resolved:
        resolve(log.event_of(RawEvent.objects.get(position=resolved)))
