"""Append events of another log, with their own times and origins or as they are (decisions 64 and 65)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import transaction

from memoryhub.core.backends.base import LIVE, Source
from memoryhub.core.backends.selected import scratch
from memoryhub.core.errors import ConflictError
from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.projection import Event, apply, finish_rebuild, read_models, text_caches
from memoryhub.core.log.anchor import advance_anchor, require_anchored
from memoryhub.core.log.append import (
    COLUMNS,
    INSERT_EVENT,
    KEY_TAKEN,
    Draft,
    Head,
    checked_once,
    insert_event,
    next_in,
    open_head,
    require_key,
)
from memoryhub.core.log.copy import ErasedMeanwhile, StoreDraft, apply_events
from memoryhub.core.log.erase import mark_unwiped
from memoryhub.core.log.read import EventColumns, event_of, head
from memoryhub.core.log.views import forget_views, forget_views_early
from memoryhub.core.origin import Origin
from memoryhub.core.schemas import Payload
from memoryhub.core.secrets.context import store_pending
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import current_store

_LISTED = ", ".join(COLUMNS)
_PUT_TAIL = (
    f"INSERT INTO {LIVE}.raw_events ({_LISTED}) SELECT {_LISTED} FROM main.raw_events WHERE position > %s "
    "ORDER BY position"
)
# Erased, or redacted with another salt: the trigger refuses everything else.
_CHANGED = (
    f"SELECT m.position FROM main.raw_events AS m JOIN {LIVE}.raw_events AS l ON l.position = m.position "
    "WHERE l.salt IS DISTINCT FROM m.salt"
)
_PUT_PAYLOADS = (
    f"UPDATE {LIVE}.raw_events AS l SET payload_json = m.payload_json, salt = m.salt FROM main.raw_events AS m "
    "WHERE m.position = l.position AND l.salt IS DISTINCT FROM m.salt"
)


def append_as_is(event: EventColumns, *, void: Container[int] = ()) -> None:
    """Append the next event of this log as another copy has it. Requires an open ``transaction``.

    Args:
        event: its digests were verified by the caller.
        void: positions of events that no read model contains.
    """
    log_head = open_head()
    insert_columns([getattr(event, name) for name in COLUMNS])
    log_head.position, log_head.digest = event.position, event.chain_digest
    if event.position not in void:
        apply(event_of(event))


def insert_columns(values: Sequence[Any]) -> None:
    """Insert an event as it is, without its projectors, given the values of ``COLUMNS``."""
    rows.put("raw_events", INSERT_EVENT, values)


def forward(events: Iterable[EventColumns], *, fork: tuple[int, str]) -> None:
    """Continue the current store's log by the rest of a longer copy, which erases or redacts text of earlier events.

    Read models are built from the longer log in a copy. One transaction transfers payloads, events and rows.

    Args:
        events: the whole longer log, verified by the caller.
        fork: position and chain digest of the store's last event.

    Raises:
        ConflictError: the store has changed meanwhile.
        Damaged: neither log matches the store's anchor.
    """
    store = current_store()
    draft = _LongerDraft(store, fork)
    with scratch.temporary_copy(store):
        with transaction.atomic(using=require_current_alias()), rows.gathering():
            for event in events:
                insert_columns([getattr(event, name) for name in COLUMNS])
        require_anchored(of=store)
        apply_events(0)
        try:
            with draft.compared():
                pass
            with draft.locked():
                _transfer(fork[0])
                forget_views_early(store)
        except ErasedMeanwhile:
            raise ConflictError("the store has changed meanwhile; try again") from None
        advance_anchor(store, *head())
    forget_views()
    finish_rebuild()


class _LongerDraft(StoreDraft):
    def __init__(self, source: Source, fork: tuple[int, str]) -> None:
        super().__init__(source, list(read_models()))
        self._fork = fork

    # It is ahead of the store, so nothing can be taken over.
    def _take_late(self) -> int:
        if head(LIVE) != self._fork:
            raise ErasedMeanwhile
        return 0


def _transfer(fork: int) -> None:
    is_changed = bool(rows.fetch(_CHANGED))
    rows.execute(_PUT_PAYLOADS)
    rows.execute(_PUT_TAIL, [fork])
    for table in text_caches:
        rows.execute(f"DELETE FROM {LIVE}.{table}")
    if is_changed:
        mark_unwiped(head()[0], LIVE)


P = TypeVar("P", bound=Payload)


# The header of an event of another log; positions in its stream's name are those of this log.
@dataclass(frozen=True, slots=True)
class CopiedHeader:
    event_id: str
    session_id: str
    turn_id: str
    stream_id: str
    # 0 for the next one
    stream_seq: int
    version: int
    occurred_at: str
    actor: str
    source: str
    trace_id: str
    idempotency_key: str | None


def append_copy(
    draft: Draft[P] | EventType[P], header: CopiedHeader, *, erased_digest: str = "", is_void: bool = False
) -> Event[P]:
    """Append an event of another log, with its own time and origin, and apply its projectors.

    Guards are not asked: its turn was open where it happened. An idempotency key that is taken here is left out.

    Args:
        draft: the result of ``prepare``; the event's type if its payload was erased.
        header: checked by the caller, except for secrets.
        erased_digest: of the payload that was erased.
        is_void: whether the event counts no more, so that no projector is applied.
    """
    head = open_head()
    origin = Origin(trace_id=checked_once(head, "trace_id", header.trace_id))
    event = _copied(draft, header, head)
    data = draft.data if isinstance(draft, Draft) else erased_digest
    key = header.idempotency_key or None
    if key and head.start and rows.fetch(KEY_TAKEN, [key]):
        key = None
    require_key(key)
    head.digest = insert_event(event, data, head, origin, key)
    head.position = event.position
    store_pending()
    if not is_void:
        apply(event)
    return event


def _copied(draft: Draft[P] | EventType[P], header: CopiedHeader, head: Head) -> Event[P]:
    if not _GENERATED_STREAM.fullmatch(header.stream_id):
        checked_once(head, "stream_id", header.stream_id)
    return Event(
        position=head.position + 1,
        event_id=header.event_id,
        type=draft.type.name if isinstance(draft, Draft) else draft.name,
        version=header.version,
        stream_id=header.stream_id,
        stream_seq=header.stream_seq or next_in(header.stream_id, head),
        session_id=checked_once(head, "session_id", header.session_id),
        turn_id=checked_once(head, "turn_id", header.turn_id),
        actor=checked_once(head, "actor", header.actor),
        source=header.source,
        occurred_text=header.occurred_at,
        payload=draft.payload if isinstance(draft, Draft) else None,  # type: ignore[arg-type]
    )


# A digest can look like a secret.
_GENERATED_STREAM = re.compile(r"[a-z]+(?::[0-9a-f]{1,64})?")
