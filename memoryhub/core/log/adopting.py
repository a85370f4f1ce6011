"""Append events of another copy of the same log, with their own digests, so that the chain goes on (decision 65)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from django.db import transaction

from memoryhub.core.backends.base import LIVE, Source
from memoryhub.core.backends.selected import scratch
from memoryhub.core.errors import Conflict
from memoryhub.core.events.projection import apply, finish_rebuild, read_models, text_caches
from memoryhub.core.log.anchor import advance_anchor, require_anchored
from memoryhub.core.log.append import COLUMNS, INSERT_EVENT, open_head
from memoryhub.core.log.copy import apply_events
from memoryhub.core.log.read import StoredEvent, event_of, head, last_erasure
from memoryhub.core.log.replacing import ErasedMeanwhile, Replacing
from memoryhub.core.log.views import forget_views, forget_views_early
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import current_store
from memoryhub.core.stores.wiping import mark_unwiped

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


def append_as_is(event: StoredEvent, *, void: Container[int] = ()) -> None:
    """Append the next event of this log as another copy has it. Requires an open ``transaction``.

    Args:
        event: its digests were verified by the caller.
        void: positions of events that no read model contains.
    """
    log_head = open_head()
    _insert(event)
    log_head.position, log_head.digest = event.position, event.chain_digest
    if event.position not in void:
        apply(event_of(event))


def _insert(event: StoredEvent) -> None:
    rows.put("raw_events", INSERT_EVENT, [getattr(event, name) for name in COLUMNS])


def forward(events: Iterable[StoredEvent], *, fork: tuple[int, str], progress: Callable[[int], None]) -> None:
    """Continue the current store's log by the rest of a longer copy, which erases or redacts text of earlier events.

    Read models are built from the longer log in a copy. One transaction transfers payloads, events and rows.

    Args:
        events: the whole longer log, verified by the caller.
        fork: position and chain digest of the store's last event.
        progress: called with the number of events applied so far.

    Raises:
        Conflict: the store has changed meanwhile.
        Damaged: neither log matches the store's anchor.
    """
    store = current_store()
    replacing = _Forwarding(store, fork)
    with scratch.temporary_copy(store):
        with transaction.atomic(using=require_current_alias()), rows.gathering():
            for event in events:
                _insert(event)
        require_anchored(of=store)
        apply_events(0, progress)
        try:
            with replacing.compared():
                pass
            with replacing.locked():
                _transfer(fork[0])
                forget_views_early(store)
        except ErasedMeanwhile:
            raise Conflict("the store has changed meanwhile; try again") from None
        advance_anchor(store, *head())
    forget_views()
    finish_rebuild()


class _Forwarding(Replacing):
    def __init__(self, source: Source, fork: tuple[int, str]) -> None:
        super().__init__(source, last_erasure(), list(read_models()))
        self._fork = fork

    # The copy is ahead of the store, so nothing can be taken over.
    def _take_late(self) -> int:
        if head(LIVE) != self._fork:
            raise ErasedMeanwhile
        return 0


def _transfer(fork: int) -> None:
    changed = [position for (position,) in rows.fetch(_CHANGED)]
    rows.execute(_PUT_PAYLOADS)
    rows.execute(_PUT_TAIL, [fork])
    for table in text_caches():
        rows.execute(f"DELETE FROM {LIVE}.{table}")
    if changed:
        mark_unwiped(head()[0], LIVE)
