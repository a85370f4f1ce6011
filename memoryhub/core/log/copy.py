"""Build a copy of a store from its log; the store itself is only read."""

from __future__ import annotations

from collections.abc import Callable

from django.db import IntegrityError, transaction

from memoryhub.core.backends.base import LIVE, Source
from memoryhub.core.backends.selected import scratch
from memoryhub.core.errors import Damaged
from memoryhub.core.events.projection import apply, void_positions
from memoryhub.core.log.append import COLUMNS
from memoryhub.core.log.read import head, read_all
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias

Progress = Callable[[int], None]

_PROGRESS_EVENTS = 200
# Events per statement: SQLite keeps the undo data of one statement in memory.
_COPIED_AT_ONCE = 5000

_TAKE = (
    f"INSERT INTO raw_events ({', '.join(COLUMNS)}) SELECT {', '.join(COLUMNS)} FROM {LIVE}.raw_events "
    "WHERE position > %s AND position <= %s ORDER BY position"
)


def take_events(up_to: int) -> int:
    """Copy the events that the current copy lacks; return its previous head. Requires ``scratch.attached``."""
    last = head()[0]
    try:
        for start in range(last, up_to, _COPIED_AT_ONCE):
            rows.execute(_TAKE, [start, min(start + _COPIED_AT_ONCE, up_to)])
    except IntegrityError as error:
        raise Damaged(
            f"the log cannot be copied: {error}; run `memory-hub doctor` to see the damage and the next steps"
        ) from error
    return last


def apply_events(after: int, progress: Progress = lambda _: None) -> int:
    """Apply the copy's events after a position to its read models; return their number."""
    count = 0
    with transaction.atomic(using=require_current_alias()), rows.gathering():
        void = void_positions()
        for event in read_all(after=after):
            if event.position not in void:
                apply(event)
            count += 1
            if count % _PROGRESS_EVENTS == 0:
                progress(count)
    return count


def follow(source: Source, *, up_to: int, progress: Progress = lambda _: None) -> int:
    with scratch.attached(source):
        last = take_events(up_to)
    return apply_events(last, progress)
