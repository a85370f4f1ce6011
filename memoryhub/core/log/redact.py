"""Redact: replace payloads without the text that should not have been stored (decision 28)."""

# The read models are rebuilt from the redacted log in a copy, so nothing derived from the text survives. One
# transaction then transfers the payloads, the payload.redacted event and the changed rows; the rows are compared
# before the lock is taken (decision 29).

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError
from pydantic import Field

from memoryhub.core import ids
from memoryhub.core.backends.base import HERE, LIVE
from memoryhub.core.backends.selected import scratch
from memoryhub.core.errors import Conflict, Invalid
from memoryhub.core.events.event_types import TurnRule, define_governance_event, event_type
from memoryhub.core.events.projection import Event, finish_rebuild, read_models, text_caches
from memoryhub.core.log.append import COLUMNS, append, appending_to, prepare
from memoryhub.core.log.copy import apply_events, take_events
from memoryhub.core.log.digests import canonical_json, payload_digest
from memoryhub.core.log.read import head, last_erasure
from memoryhub.core.log.replacing import ErasedMeanwhile, Replacing
from memoryhub.core.log.views import forget_views, forget_views_early
from memoryhub.core.schemas import STORED, EventRef, Payload, Sha256
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, NOT_INDEXED, entries, json_text
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.core.stores.wiping import mark_unwiped
from memoryhub.core.validation import explain


class PayloadRedacted(Payload):
    """Text was removed from payloads, which now have a new salt and digest."""

    # Position to the digest of the present payload; the chain keeps the original digest.
    digests: dict[EventRef, Sha256] = Field(min_length=1)
    # How the text was found: a rule, or a label that the person chose; never the text itself.
    what: str
    reason: str = ""


PAYLOAD_REDACTED = define_governance_event(
    "payload.redacted", PayloadRedacted, label="Payload redacted", turn=TurnRule.OPTIONAL, removes_text=True
)

_DIGESTS = (
    f"SELECT {json_text('payload_json', 'digests')} FROM {{database}}.raw_events {{hint}} "
    "WHERE event_type = 'payload.redacted' AND payload_json IS NOT NULL ORDER BY position"
)


def redacted_digests(database: str = "main", *, use_index: bool = True) -> dict[int, str]:
    """Return the digest that each redacted payload must have now, by position."""
    found: dict[int, str] = {}
    for (digests,) in rows.fetch(_DIGESTS.format(database=database, hint="" if use_index else NOT_INDEXED)):
        found |= {int(position): digest for position, digest in json.loads(digests).items()}
    return found


logger = logging.getLogger(__name__)

# A new salt together with the payload: the trigger refuses any other update.
_WRITE_PAYLOADS = (
    f"UPDATE {{database}}.raw_events AS e SET payload_json = {json_text('n.value', 0)}, "
    f"salt = {json_text('n.value', 1)} FROM {entries()} AS n WHERE e.position = CAST(n.key AS bigint) "
    "AND e.payload_json IS NOT NULL"
)
_COPY_EVENT = (
    f"INSERT INTO {LIVE}.raw_events ({', '.join(COLUMNS)}) SELECT {', '.join(COLUMNS)} FROM main.raw_events "
    "WHERE position = %s"
)
_ENTITIES = (
    "SELECT min(position) FROM main.raw_events WHERE stream_id IN "
    f"(SELECT stream_id FROM main.raw_events WHERE position IN {IDS}) GROUP BY stream_id"
)


def redact_payloads(
    payloads: Mapping[int, Mapping[str, Any]],
    *,
    what: str,
    reason: str = "",
    seen: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Event[PayloadRedacted]:
    """Replace payloads by their redacted form; the chain still verifies, and the read models are rebuilt.

    Args:
        payloads: position to the redacted JSON data, which must still fit the event's schema.
        what: how the text was found; never the text itself.
        reason: why it is removed.
        seen: the ``last_erasure`` when the payloads were read; default: now.
        progress: called with the number of events applied so far.

    Raises:
        Invalid: there is nothing to replace, an event has no payload any more, or a payload does not fit its schema.
        Conflict: events were erased or redacted since; find the text again.
    """
    seen = last_erasure() if seen is None else seen
    _check(payloads)
    salted = {position: (canonical_json(payload), ids.random_bytes(16).hex()) for position, payload in payloads.items()}
    event = _apply(_Change(current_store(), salted, seen, what, reason), progress)
    forget_views()
    finish_rebuild()
    return event


@dataclass(frozen=True, slots=True)
class _Change:
    store: StoreId
    # Position to the redacted payload and its salt.
    salted: Mapping[int, tuple[str, str]]
    seen: int
    what: str
    reason: str


def _check(payloads: Mapping[int, Mapping[str, Any]]) -> None:
    from pydantic import ValidationError

    # A payload that does not fit its schema could not be read again: a rebuild would fail on it.
    found = {row[0]: row[1:] for row in rows.fetch(_CURRENT, [json.dumps(list(payloads))])}
    if not payloads or set(found) != set(payloads):
        missing = f"event #{min(set(payloads) - set(found))} has no text" if payloads else "there is nothing"
        raise Invalid(f"{missing} to redact")
    for position, payload in payloads.items():
        name, before = found[position]
        if _removes_text(name) and {**payload, "reason": ""} != {**json.loads(before), "reason": ""}:
            raise Invalid(f"event #{position} records a redaction or an erasure; only its reason can be redacted")
        try:
            _schema(name).model_validate(payload, context=STORED)
        except ValidationError as error:
            raise Invalid(f"event #{position} would be invalid without that text: {explain(error)}") from error


def _schema(type_name: str) -> type[Payload]:
    kind = event_type(type_name)
    if kind is None:
        raise Invalid(f"this version does not know events of type {type_name}; upgrade Memory Hub")
    return kind.schema


def _removes_text(type_name: str) -> bool:
    kind = event_type(type_name)
    return kind is not None and kind.removes_text


_CURRENT = (
    f"SELECT position, event_type, payload_json FROM raw_events WHERE position IN {IDS} AND payload_json IS NOT NULL"
)


def _apply(change: _Change, progress: Callable[[int], None]) -> Event[PayloadRedacted]:
    last, _ = head()
    _require_same(last_erasure(), change.seen)
    replacing = Replacing(change.store, change.seen, list(read_models()))
    with scratch.temporary_copy(change.store):
        with scratch.attached(change.store):
            take_events(last)
        _write_payloads(change.salted, HERE)
        apply_events(0, progress)
        try:
            replacing.catch_up()
            with replacing.compared():
                pass
            with replacing.locked():
                event = _transfer(change)
        except ErasedMeanwhile:
            raise _changed_meanwhile() from None
        try:
            replacing.settle()
        except DatabaseError as error:  # the redaction is committed; the caller's next steps must still run
            logger.warning("comparing %s again after a redaction failed; run rebuild: %s", change.store.name, error)
        return event


def _require_same(erasure: int, seen: int) -> None:
    if erasure != seen:
        raise _changed_meanwhile()


def _changed_meanwhile() -> Conflict:
    return Conflict("events were erased, redacted or restored meanwhile; preview the redaction again")


def _transfer(change: _Change) -> Event[PayloadRedacted]:
    digests = {position: payload_digest(salt, text) for position, (text, salt) in change.salted.items()}
    draft = prepare(PAYLOAD_REDACTED, PayloadRedacted(digests=digests, what=change.what, reason=change.reason))
    with appending_to(change.store):
        event = append(draft, stream="redactions")
    rows.execute(_COPY_EVENT, [event.position])
    _write_payloads(change.salted, LIVE)
    _clear_caches(list(change.salted))
    mark_unwiped(event.position, LIVE)
    forget_views_early(change.store)
    return event


def _write_payloads(salted: Mapping[int, tuple[str, str]], database: str) -> None:
    rows.execute(_WRITE_PAYLOADS.format(database=database), [json.dumps(salted)])


def _clear_caches(positions: list[int]) -> None:
    # Caches are keyed by event or by entity: clear both.
    about = [row[0] for row in rows.fetch(_ENTITIES, [json.dumps(positions)])]
    for table, column in text_caches().items():
        rows.execute(
            f"DELETE FROM {LIVE}.{table} WHERE {column} IN {IDS}",
            [json.dumps([*positions, *about])],
        )
