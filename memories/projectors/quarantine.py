"""What quarantine does to names: a topic, a relation, a tag's description can be had by others while it lasts.

A memory in quarantine gives up its topic, and has it back when it is let out, unless another has it by then. Relations
and descriptions of tags have no text of their own to keep: they go, and are made again from the log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.db.models.expressions import RawSQL

from memories.events import RELATION_CREATED, TAG_CREATED, RelationCreated
from memories.models import Relation, Tag
from memories.projectors.links import describe_tag, relate
from memoryhub.core import log, rows
from memoryhub.core.models import RawEvent
from memoryhub.core.projection import Event, projects
from memoryhub.core.quarantine import QUARANTINE_LIFTED, QUARANTINE_PLACED, QuarantineLifted, QuarantinePlaced

_LISTED = "(SELECT value FROM json_each(%s))"
_TOPIC = (
    "(SELECT json_extract(e.payload_json, '$.topic_key') FROM memories_memoryversion v JOIN raw_events e "
    "ON e.position = v.id WHERE v.memory_id = memories_memory.id AND v.version = memories_memory.version)"
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
    _make_again([log.event_of(each) for each in gone.order_by("position")])


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


def _said(payload: RelationCreated) -> tuple[int, int, str]:
    return payload.source_id, payload.target_id, payload.relation
