from __future__ import annotations

import json
from typing import Any

from governance.events import (
    HOLD_LIFTED,
    HOLD_PLACED,
    RETENTION_BEGAN,
    RETENTION_RAN,
    ROLLBACK_MADE,
    ROLLBACK_UNDONE,
    THING_AFFIRMED,
    HoldLifted,
    HoldPlaced,
    RetentionBegan,
    RetentionRan,
    RollbackMade,
    RollbackUndone,
    ThingAffirmed,
)
from governance.models import Hold, Redaction, RetentionRun, Rollback
from memories.validity.projectors import store_provenance
from memoryhub.core import clock, log
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import Forbidden
from memoryhub.core.events.projection import Event, project_headers, projects
from memoryhub.core.log import PAYLOAD_ERASED, PAYLOAD_REDACTED, PayloadErased, PayloadRedacted
from memoryhub.core.log.quarantine import (
    QUARANTINE_LIFTED,
    QUARANTINE_PLACED,
    QuarantineLifted,
    QuarantinePlaced,
    outside_quarantine,
)
from memoryhub.core.log.read import entity_of
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS


@projects(PAYLOAD_REDACTED)
def keep_redaction(event: Event[PayloadRedacted]) -> None:
    rows.insert(
        Redaction,
        id=event.position,
        what=event.payload.what,
        reason=event.payload.reason,
        events=len(event.payload.digests),
        actor=event.actor,
        source=event.source,
        redacted_at=event.occurred_at,
    )


@projects(HOLD_PLACED)
def place(event: Event[HoldPlaced]) -> None:
    rows.insert(
        Hold,
        id=event.position,
        stream_id=event.payload.stream_id,
        reason=event.payload.reason,
        placed_by=event.actor,
        placed_at=event.occurred_at,
    )


@projects(HOLD_LIFTED)
def lift(event: Event[HoldLifted]) -> None:
    rows.update(
        Hold,
        event.payload.hold_id,
        lifted_by=event.actor,
        lifted_at=event.occurred_at,
        lift_reason=event.payload.reason,
    )


# A projector, because every way to erase appends this event, so none can bypass a hold; raising here rolls the whole
# erasure back (decision 26). No log contains such an erasure, so a rebuild never raises.
@projects(PAYLOAD_ERASED)
def refuse_held(event: Event[PayloadErased]) -> None:
    holds = list(Hold.objects.filter(lifted_at=None).order_by("id"))
    if not holds:
        return
    erased = log.events().at(event.payload.positions)
    held = set()
    for stream_id, session_id in erased.order_by().values_list("stream_id", "session_id").distinct():
        held |= {"*", stream_id, f"session:{session_id}"}
    for hold in holds:
        if hold.stream_id in held:
            raise Forbidden(
                f"hold #{hold.id} on {hold.stream_id} prevents this ({hold.reason}); nothing was erased; "
                "lift the hold first",
                hold=hold.id,
            )


@projects(RETENTION_BEGAN)
def begin(event: Event[RetentionBegan]) -> None:
    payload = event.payload
    rows.insert(
        RetentionRun,
        id=event.position,
        cutoff=clock.from_text(payload.cutoff),
        digest=payload.digest,
        events=payload.events,
        bytes=payload.bytes,
        report=payload.report,
        actor=event.actor,
        source=event.source,
        began_at=event.occurred_at,
    )


@projects(RETENTION_RAN)
def end(event: Event[RetentionRan]) -> None:
    payload = event.payload
    rows.update(
        RetentionRun,
        payload.run_id,
        events=payload.events,
        bytes=payload.bytes,
        report=payload.report,
        ran_at=event.occurred_at,
    )


@projects(ROLLBACK_MADE)
def keep_rollback(event: Event[RollbackMade]) -> None:
    rows.insert(Rollback, id=event.position, actor=event.actor, made_at=event.occurred_at, **event.payload.model_dump())


@projects(ROLLBACK_UNDONE)
def keep_undoing(event: Event[RollbackUndone]) -> None:
    rows.update(
        Rollback,
        event.payload.rollback_id,
        undone_by=event.actor,
        undone_at=event.occurred_at,
        undone_left=event.payload.left,
    )


_AFFIRM = (
    "INSERT INTO governance_affirmation (entity_id, event, actor, reason, affirmed_at) VALUES (%s, %s, %s, %s, %s) "
    "ON CONFLICT (entity_id) DO UPDATE SET event = excluded.event, actor = excluded.actor, "
    "reason = excluded.reason, affirmed_at = excluded.affirmed_at"
)


# Takes headers: an affirmation counts even if its reason was erased
@project_headers
def affirm(event: Event[Any]) -> None:
    if event.type != THING_AFFIRMED.name:
        return
    entity_id = int(event.stream_id.rpartition(":")[2])
    reason = event.payload.reason if event.payload else ""
    when = rows.time_value(event.occurred_at)
    rows.execute(_AFFIRM, [entity_id, event.position, event.actor, reason, when])


@projects(THING_AFFIRMED)
def renew_provenance(event: Event[ThingAffirmed]) -> None:
    store_provenance(event.payload.entity_id, event.payload.provenance)


@projects(QUARANTINE_PLACED, QUARANTINE_LIFTED)
def settle_affirmations(event: Event[QuarantinePlaced | QuarantineLifted]) -> None:
    affirmations = log.events().of_type(THING_AFFIRMED)
    streams = affirmations.at(event.payload.ids).order_by().values("stream_id")
    affirmed = affirmations.filter(stream_id__in=streams).window(up_to=event.position - 1)
    for affirmation in affirmed:
        rows.execute("DELETE FROM governance_affirmation WHERE entity_id = %s", [entity_of(affirmation)])
    present = find_entities(entity_of(affirmation) for affirmation in affirmed)
    for affirmation in outside_quarantine(affirmed):
        if entity_of(affirmation) in present:
            affirm(log.event_of(affirmation))


@projects(PAYLOAD_ERASED)
def forget_erased(event: Event[PayloadErased]) -> None:
    rows.execute(
        f"UPDATE governance_affirmation SET reason = '' WHERE event IN {IDS}", [json.dumps(event.payload.positions)]
    )
    gone = []
    for stream in event.payload.streams:
        number = stream.partition(":")[2]
        if number.isdecimal():
            gone.append(int(number))
    rows.execute(f"DELETE FROM governance_affirmation WHERE entity_id IN {IDS}", [json.dumps(gone)])
