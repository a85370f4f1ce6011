"""Setting things aside: nothing tells of them any more, nothing of them is lost, and they can be let out again.

An id names one thing in a store, whatever it is, so one table is enough for memories, decisions, messages and commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from django.db.models import QuerySet
from pydantic import Field

from memoryhub.core.events.event_types import define_governance_event
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.log.erase import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.models import Quarantine
from memoryhub.core.schemas import Payload
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, int_elements, json_text

Q = TypeVar("Q", bound=QuerySet[Any, Any])

OUTSIDE = "NOT IN (SELECT id FROM quarantine)"
"""The condition on an id that is told of."""


class QuarantinePlaced(Payload):
    """Things were set aside."""

    ids: list[int] = Field(min_length=1)
    reason: str = ""


class QuarantineLifted(Payload):
    """Things were let out again."""

    ids: list[int] = Field(min_length=1)
    reason: str = ""


# In version 2, evidence and edges that somebody else gave too stay in force, and no relation is made again that was
# removed or lost an end. Logs of earlier versions of the hub hold events of version 1, which replay as they did then.
QUARANTINE_PLACED = define_governance_event("quarantine.placed", QuarantinePlaced, label="Quarantine placed", version=2)
QUARANTINE_LIFTED = define_governance_event("quarantine.lifted", QuarantineLifted, label="Quarantine lifted", version=2)

_PLACE = (
    f"INSERT INTO quarantine (id, placed_by) SELECT value, %s FROM {int_elements()} AS placed WHERE true "
    "ON CONFLICT DO NOTHING"
)
_LIFT = f"DELETE FROM quarantine WHERE id IN {IDS}"


@projects(QUARANTINE_PLACED)
def place(event: Event[QuarantinePlaced]) -> None:
    """Set them aside; what was so already keeps the event that did it first."""
    rows.execute(_PLACE, [event.position, json.dumps(event.payload.ids)])


@projects(QUARANTINE_LIFTED)
def lift(event: Event[QuarantineLifted]) -> None:
    """Let them out."""
    rows.execute(_LIFT, [json.dumps(event.payload.ids)])


@projects(PAYLOAD_ERASED)
def forget_erased(event: Event[PayloadErased]) -> None:
    """Forget what is no longer there."""
    rows.execute(_LIFT, [json.dumps(event.payload.positions)])


def quarantined_among(ids: Sequence[int]) -> set[int]:
    """Return those of the ids that are set aside."""
    sql = f"SELECT id FROM quarantine WHERE id IN {IDS}"
    return {row[0] for row in rows.fetch(sql, [json.dumps(list(ids))])}


_MARKS = (
    f"SELECT q.id, q.placed_by, coalesce({json_text('e.payload_json', 'reason')}, '') FROM quarantine q "
    f"JOIN raw_events e ON e.position = q.placed_by WHERE q.id IN {IDS}"
)


def quarantine_marks(ids: Iterable[int]) -> dict[int, str]:
    """Return what to say of those of the ids that are set aside: since which event, and why."""
    found = rows.fetch(_MARKS, [json.dumps(list(ids))])
    return {each: f"in quarantine since #{event}{f': {reason}' if reason else ''}" for each, event, reason in found}


def outside_quarantine(found: Q, field: str = "pk") -> Q:
    """Leave out what is set aside; ``field`` is the one that has the id."""
    return found.exclude(**{f"{field}__in": Quarantine.objects.values("id")})
