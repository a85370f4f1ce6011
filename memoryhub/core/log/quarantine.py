"""Quarantine: hide entities without deleting them, until they are released (decision 27)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from django.db.models import QuerySet
from pydantic import Field

from memoryhub.core.events.event_types import define_governance_event
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.log.erase import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.log.read import StoredEvent, entity_of
from memoryhub.core.models import Quarantine
from memoryhub.core.schemas import EventRefs, Payload
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, int_elements, json_list, json_text

# Ids are positions of the log, so one table of ids covers memories, decisions, messages, edges and commits.
Q = TypeVar("Q", bound=QuerySet[Any, Any])

# SQL predicate: the id is not quarantined.
OUTSIDE = "NOT IN (SELECT id FROM quarantine)"


class QuarantinePlaced(Payload):
    """Entities were put into quarantine."""

    ids: EventRefs = Field(min_length=1)
    reason: str = ""


class QuarantineLifted(Payload):
    """Entities were released from quarantine."""

    ids: EventRefs = Field(min_length=1)
    reason: str = ""


# Since version 2, evidence and edges that other callers also gave stay in force, and a release does not restore a
# relation that was removed or lost an end. Events of version 1 in older logs replay as they did then.
QUARANTINE_PLACED = define_governance_event("quarantine.placed", QuarantinePlaced, label="Quarantine placed", version=2)
QUARANTINE_LIFTED = define_governance_event("quarantine.lifted", QuarantineLifted, label="Quarantine lifted", version=2)

_PLACE = (
    f"INSERT INTO quarantine (id, placed_by) SELECT value, %s FROM {int_elements()} AS placed WHERE true "
    "ON CONFLICT DO NOTHING"
)
_LIFT = f"DELETE FROM quarantine WHERE id IN {IDS}"


@projects(QUARANTINE_PLACED)
def place(event: Event[QuarantinePlaced]) -> None:
    # An id that is already quarantined keeps the event that placed it first.
    rows.execute(_PLACE, [event.position, json_list(event.payload.ids)])


@projects(QUARANTINE_LIFTED)
def lift(event: Event[QuarantineLifted]) -> None:
    rows.execute(_LIFT, [json_list(event.payload.ids)])


@projects(PAYLOAD_ERASED)
def forget_erased(event: Event[PayloadErased]) -> None:
    rows.execute(_LIFT, [json_list(event.payload.positions)])


def quarantined_among(ids: Sequence[int]) -> set[int]:
    sql = f"SELECT id FROM quarantine WHERE id IN {IDS}"
    return set(rows.column(sql, [json_list(ids)]))


_MARKS = (
    f"SELECT q.id, q.placed_by, coalesce({json_text('e.payload_json', 'reason')}, '') FROM quarantine q "
    f"JOIN raw_events e ON e.position = q.placed_by WHERE q.id IN {IDS}"
)


def quarantine_marks(ids: Iterable[int]) -> dict[int, str]:
    """Map the quarantined ids to a note: since which event, and why."""
    marks = rows.fetch(_MARKS, [json_list(ids)])
    notes = {}
    for entity, event, reason in marks:
        notes[entity] = f"in quarantine since #{event}"
        if reason:
            notes[entity] += f": {reason}"
    return notes


def outside_quarantine(selection: Q, field: str = "pk") -> Q:
    """Exclude quarantined rows; ``field`` holds the entity's id."""
    return selection.exclude(**{f"{field}__in": Quarantine.objects.values("id")})


def quarantine_notes(events: Sequence[StoredEvent]) -> dict[int, str]:
    """Map the positions of quarantined events to the note shown in place of their title."""
    marks = quarantine_marks({id_ for event in events for id_ in (event.position, entity_of(event))})
    notes = {event.position: marks.get(entity_of(event)) or marks.get(event.position) for event in events}
    return {position: f"({mark})" for position, mark in notes.items() if mark}
