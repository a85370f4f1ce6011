"""Erase payloads: the text is removed, its digest stays, and the chain still verifies (decision 6)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

from django.db.transaction import on_commit

from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.events.event_types import TurnRule, define_governance_event, event_type
from memoryhub.core.events.projection import Event
from memoryhub.core.log.append import append, prepare, transaction
from memoryhub.core.log.views import forget_views, forget_views_early
from memoryhub.core.models import RawEvent
from memoryhub.core.schemas import EventRefs, Generated, Payload, RenumberedStreams
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, int_elements
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.wiping import mark_unwiped

# A stream's name as in event headers. ``erase_streams`` ignores all other names.
StreamName = Annotated[str, Generated(r"[a-z]+(?::(?s:.)+)?", "the name of a stream, such as memory:412")]


class PayloadErased(Payload):
    """Payloads were erased: of whole streams, or of events that can be erased alone."""

    # Streams that were erased completely; empty if single events were.
    streams: Annotated[list[StreamName], RenumberedStreams]
    positions: EventRefs
    reason: str


PAYLOAD_ERASED = define_governance_event(
    "payload.erased", PayloadErased, label="Erasure", turn=TurnRule.OPTIONAL, removes_text=True
)

_ERASE = f"UPDATE raw_events SET payload_json = NULL, salt = NULL WHERE position IN {IDS} AND payload_json IS NOT NULL"
_TYPES = f"SELECT DISTINCT event_type FROM raw_events WHERE position IN {IDS} AND payload_json IS NOT NULL"


def erased_positions(database: str = "main") -> set[int]:
    found = rows.fetch(
        f"SELECT value FROM {database}.raw_events AS e, {int_elements('e.payload_json', 'positions')} AS gone "
        "WHERE e.event_type = 'payload.erased'"
    )
    return {position for (position,) in found}


def erase_streams(streams: Sequence[str], *, reason: str) -> Event[PayloadErased]:
    with transaction():
        named = RawEvent.objects.filter(stream_id__in=list(streams))
        found = named.filter(payload_json__isnull=False)
        positions = sorted(found.values_list("position", flat=True))
        if not positions:
            raise NotFound("there is nothing left to erase in these streams")
        erased = sorted(set(named.values_list("stream_id", flat=True)))
        return _erase(PayloadErased(streams=erased, positions=positions, reason=reason))


def erase_events(positions: Sequence[int], *, reason: str) -> Event[PayloadErased]:
    with transaction():
        types = [name for (name,) in rows.fetch(_TYPES, [json.dumps(list(positions))])]
        if not types:
            raise NotFound("there is nothing left to erase in these events")
        for name in types:
            if not stands_alone(name):
                raise Invalid(f"an event of type {name} cannot be erased by itself; erase its whole stream")
        return _erase(PayloadErased(streams=[], positions=sorted(positions), reason=reason))


def stands_alone(type_name: str) -> bool:
    kind = event_type(type_name)
    return kind is not None and kind.stands_alone


def _erase(payload: PayloadErased) -> Event[PayloadErased]:
    remove_payloads(payload.positions)
    event = append(prepare(PAYLOAD_ERASED, payload), stream="erasures")
    mark_unwiped(event.position)
    return event


def remove_payloads(positions: Sequence[int]) -> None:
    """Erase payloads; the caller appends the event that records it, and calls ``mark_unwiped``."""
    rows.execute(_ERASE, [json.dumps(list(positions))])
    forget_views_early()
    on_commit(forget_views, using=require_current_alias())
