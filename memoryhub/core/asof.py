"""What the store said at a past position or time, from the log alone.

Inside ``as_of`` the current store is a view: a store of its own, made from the log up to that point. Every query works
in it as it does in the present, and nothing can be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime

from memoryhub.core import clock, rows
from memoryhub.core.errors import NotFound
from memoryhub.core.log import head, view_at
from memoryhub.core.stores import StoreId, current_store, use_store


@contextmanager
def as_of(moment: int | datetime) -> Iterator[int]:
    """Make the current store what it was at a position, or at a time, inside the block; yield the position.

    Raises:
        NotFound: the log does not reach that position.
        Locked: events were erased time and again while the view was made.
    """
    position, store = position_at(moment), viewed_store()
    with use_store(view_at(position)):
        rows.execute("PRAGMA query_only=ON")
        token = _viewed.set(store)
        try:
            yield position
        finally:
            _viewed.reset(token)


_viewed: ContextVar[StoreId | None] = ContextVar("viewed_store", default=None)


def viewed_store() -> StoreId:
    """Return the store that is asked, now or in the past: the current one, or the one that the current view is of."""
    return _viewed.get() or current_store()


def position_at(moment: int | datetime) -> int:
    """Return a position as it is, or that of the last event at or before a time; 0 before the first event.

    Raises:
        NotFound: the log does not reach that position.
    """
    if isinstance(moment, datetime):
        found = rows.fetch("SELECT max(position) FROM raw_events WHERE occurred_at <= %s", [clock.to_text(moment)])
        return found[0][0] or 0
    last, _ = head()
    if not 0 <= moment <= last:
        raise NotFound(f"there is no position {moment} here; the log ends at #{last}", head=last)
    return moment
