"""Remove text from the log and from the database's files: erase, redact, wipe free space (decisions 6 and 28)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from django.db import DatabaseError
from django.db.transaction import on_commit
from pydantic import Field

from memoryhub.core import ids
from memoryhub.core.backends.base import HERE, LIVE
from memoryhub.core.backends.selected import scratch, wiping
from memoryhub.core.errors import ConflictError, Invalid, NotFound
from memoryhub.core.events.event_types import TurnRule, define_governance_event, event_type
from memoryhub.core.events.projection import Event, finish_rebuild, read_models, text_caches
from memoryhub.core.log.append import COLUMNS, append, appending_to, prepare, transaction
from memoryhub.core.log.copy import ErasedMeanwhile, StoreDraft, apply_events, take_events
from memoryhub.core.log.digests import canonical_json, payload_digest
from memoryhub.core.log.read import events, head, last_erasure
from memoryhub.core.log.views import forget_views, forget_views_early
from memoryhub.core.schemas import STORED, EventRef, EventRefs, Generated, Payload, RenumberedStreams, Sha256
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, NOT_INDEXED, entries, int_elements, json_list, json_text
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.core.validation import explain

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


def erased_positions(database: str = "main") -> set[int]:
    positions = rows.column(
        f"SELECT value FROM {database}.raw_events AS e, {int_elements('e.payload_json', 'positions')} AS gone "
        "WHERE e.event_type = 'payload.erased'"
    )
    return set(positions)


def erase_streams(streams: Sequence[str], *, reason: str) -> Event[PayloadErased]:
    with transaction():
        of_streams = events().of_stream(*streams)
        positions = of_streams.readable().positions()
        if not positions:
            raise NotFound("there is nothing left to erase in these streams")
        erased = sorted(set(of_streams.values_list("stream_id", flat=True)))
        return _erase(PayloadErased(streams=erased, positions=positions, reason=reason))


def erase_events(positions: Sequence[int], *, reason: str) -> Event[PayloadErased]:
    with transaction():
        types = events().at(positions).readable().count_by_type()
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
    rows.execute(_ERASE, [json_list(positions)])
    forget_views_early()
    on_commit(forget_views, using=require_current_alias())


# The read models are rebuilt from the redacted log in a copy, so nothing derived from the text survives. One
# transaction then transfers the payloads, the payload.redacted event and the changed rows; the rows are compared
# before the lock is taken (decision 29).


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
    by_position: dict[int, str] = {}
    for digests in rows.column(_DIGESTS.format(database=database, hint="" if use_index else NOT_INDEXED)):
        by_position |= {int(position): digest for position, digest in json.loads(digests).items()}
    return by_position


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
_CHANGED_MEANWHILE = "events were erased, redacted or restored meanwhile; preview the redaction again"


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
        ConflictError: events were erased or redacted since; find the text again.
    """
    if seen is None:
        seen = last_erasure()
    _check(payloads)
    salted = {position: (canonical_json(payload), ids.random_bytes(16).hex()) for position, payload in payloads.items()}
    digests = {position: payload_digest(salt, text) for position, (text, salt) in salted.items()}
    event = _apply(salted, PayloadRedacted(digests=digests, what=what, reason=reason), seen, progress)
    forget_views()
    finish_rebuild()
    return event


def _check(payloads: Mapping[int, Mapping[str, Any]]) -> None:
    from pydantic import ValidationError

    if not payloads:
        raise Invalid("there is nothing to redact")
    stored = {event.position: event for event in events().at(payloads).readable()}
    without_text = set(payloads) - set(stored)
    if without_text:
        raise Invalid(f"event #{min(without_text)} has no text to redact")
    for position, payload in payloads.items():
        event = stored[position]
        kind = event_type(event.event_type)
        if kind is None:
            raise Invalid(f"this version does not know events of type {event.event_type}; upgrade Memory Hub")
        before = json.loads(event.payload_json or "")
        if kind.removes_text and {**payload, "reason": ""} != {**before, "reason": ""}:
            raise Invalid(f"event #{position} records a redaction or an erasure; only its reason can be redacted")
        try:
            # A payload that does not fit its schema could not be read again: a rebuild would fail on it.
            kind.schema.model_validate(payload, context=STORED)
        except ValidationError as error:
            raise Invalid(f"event #{position} would be invalid without that text: {explain(error)}") from error


# ``salted``: position to the redacted payload and its salt
def _apply(
    salted: Mapping[int, tuple[str, str]], record: PayloadRedacted, seen: int, progress: Callable[[int], None]
) -> Event[PayloadRedacted]:
    store = current_store()
    last, _ = head()
    if last_erasure() != seen:
        raise ConflictError(_CHANGED_MEANWHILE)
    draft = StoreDraft(store, list(read_models()))
    with scratch.temporary_copy(store):
        with scratch.attached(store):
            take_events(last)
        rows.execute(_WRITE_PAYLOADS.format(database=HERE), [json.dumps(salted)])
        apply_events(0, progress)
        try:
            draft.catch_up()
            with draft.compared():
                pass
            with draft.locked():
                event = _transfer(store, salted, record)
        except ErasedMeanwhile:
            raise ConflictError(_CHANGED_MEANWHILE) from None
        try:
            draft.settle()
        except DatabaseError as error:  # the redaction is committed; the caller's next steps must still run
            logger.warning("comparing %s again after a redaction failed; run rebuild: %s", store.name, error)
        return event


def _transfer(store: StoreId, salted: Mapping[int, tuple[str, str]], record: PayloadRedacted) -> Event[PayloadRedacted]:
    draft = prepare(PAYLOAD_REDACTED, record)
    with appending_to(store):
        event = append(draft, stream="redactions")
    rows.execute(_COPY_EVENT, [event.position])
    rows.execute(_WRITE_PAYLOADS.format(database=LIVE), [json.dumps(salted)])
    # Caches are keyed by event or by entity: clear both.
    about = json_list([*salted, *rows.column(_ENTITIES, [json_list(salted)])])
    for table, column in text_caches.items():
        rows.execute(f"DELETE FROM {LIVE}.{table} WHERE {column} IN {IDS}", [about])
    mark_unwiped(event.position, LIVE)
    forget_views_early(store)
    return event


# A key of ``store_meta``, set from an erasure until the text is wiped from the files: a process may die in between.
_MARK = "unwiped"


def mark_unwiped(position: int, database: str = "main") -> None:
    """Record, in the transaction that deletes text, up to which event the files must be wiped."""
    rows.put_meta(_MARK, str(position), table=f"{database}.store_meta")


def is_unwiped() -> bool:
    return rows.meta(_MARK) is not None


def wipe_free_space() -> bool:
    """Rewrite the current store without what was deleted.

    Returns False if others held the store longer than the busy timeout or the disk is full: deleted text stays in the
    files until this is repeated. Takes about a second per 100 MB, during which others can read.
    """
    mark = rows.meta(_MARK)
    if not wiping.rewrite():
        return False
    if mark is not None:
        rows.execute("DELETE FROM store_meta WHERE key = %s AND value = %s", [_MARK, mark])
    return True
