"""What is so, after what happened in staleness."""

from __future__ import annotations

import json
from typing import Any

from django.db.models.expressions import RawSQL

from governance.staleness.events import THING_AFFIRMED
from memoryhub.core import log, rows
from memoryhub.core.chronicle import entity_of
from memoryhub.core.dialect import IDS
from memoryhub.core.entities import find_entities
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.models import RawEvent
from memoryhub.core.projection import Event, project_headers, projects
from memoryhub.core.quarantine import (
    QUARANTINE_LIFTED,
    QUARANTINE_PLACED,
    QuarantineLifted,
    QuarantinePlaced,
    outside_quarantine,
)

_AFFIRM = (
    "INSERT INTO governance_affirmation (entity_id, event, actor, reason, affirmed_at) VALUES (%s, %s, %s, %s, %s) "
    "ON CONFLICT (entity_id) DO UPDATE SET event = excluded.event, actor = excluded.actor, "
    "reason = excluded.reason, affirmed_at = excluded.affirmed_at"
)
_STREAMS = f"SELECT stream_id FROM raw_events WHERE position IN {IDS} AND event_type = '{THING_AFFIRMED.name}'"


@project_headers
def affirm(event: Event[Any]) -> None:
    """Keep the latest affirmation of the thing whose stream it is in: that holds even where its reason was erased."""
    if event.type != THING_AFFIRMED.name:
        return
    entity_id = int(event.stream_id.rpartition(":")[2])
    reason = event.payload.reason if event.payload else ""
    when = rows.time_value(event.occurred_at)
    rows.execute(_AFFIRM, [entity_id, event.position, event.actor, reason, when])


@projects(QUARANTINE_PLACED, QUARANTINE_LIFTED)
def settle_affirmations(event: Event[QuarantinePlaced | QuarantineLifted]) -> None:
    """Keep the latest affirmation that is not in quarantine, of each thing that one of these affirmed."""
    affirmed = RawEvent.objects.filter(
        stream_id__in=RawSQL(rows.rendered(_STREAMS), [json.dumps(event.payload.ids)]),  # noqa: S611 - a constant
        event_type=THING_AFFIRMED.name,
        position__lt=event.position,
    )
    for each in affirmed.order_by("position"):
        rows.execute("DELETE FROM governance_affirmation WHERE entity_id = %s", [entity_of(each)])
    present = find_entities(entity_of(each) for each in affirmed)
    for each in outside_quarantine(affirmed).order_by("position"):
        if entity_of(each) in present:
            affirm(log.event_of(each))


@projects(PAYLOAD_ERASED)
def forget_erased(event: Event[PayloadErased]) -> None:
    """Drop the reasons that were erased, and the affirmations of things that were erased whole."""
    rows.execute(
        f"UPDATE governance_affirmation SET reason = '' WHERE event IN {IDS}",
        [json.dumps(event.payload.positions)],
    )
    gone = [int(tail) for _, _, tail in (each.partition(":") for each in event.payload.streams) if tail.isdecimal()]
    rows.execute(f"DELETE FROM governance_affirmation WHERE entity_id IN {IDS}", [json.dumps(gone)])
