"""Views: a store at a past position, rebuilt from its log and cached."""

# A view contains the text of its time, so it must disappear when text is erased: its name has the position of the
# last erasure, an erasure removes all views of its store, and a view that is being built meanwhile is discarded.

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial

from memoryhub.core import clock
from memoryhub.core.backends.selected import stores, views
from memoryhub.core.errors import Locked, NotFound
from memoryhub.core.log.copy import StoreDraft
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.read import digest_at, head, last_erasure
from memoryhub.core.stores import rows, schema
from memoryhub.core.stores.dialect import unindexed
from memoryhub.core.stores.store import Scope, StoreId, current_store, use_store
from memoryhub.core.stores.store_id import key_of

# Views per store; the least recently used one is removed first.
KEPT = 4

_ATTEMPTS = 3


@contextmanager
def as_of(moment: int | datetime) -> Iterator[int]:
    """Make the current store a view of itself at a position or time; yield the position.

    Raises:
        NotFound: the log does not reach that position.
        Locked: events were erased repeatedly while the view was built.
    """
    position, store = position_at(moment), viewed_store()
    with use_store(view_at(position)):
        views.forbid_writes()
        token = _viewed.set(store)
        try:
            yield position
        finally:
            _viewed.reset(token)


_viewed: ContextVar[StoreId | None] = ContextVar("viewed_store", default=None)


def viewed_store() -> StoreId:
    """Return the current store, or the store that the current view was built from."""
    return _viewed.get() or current_store()


def position_at(moment: int | datetime) -> int:
    if isinstance(moment, datetime):
        return _position_at_time(clock.to_text(moment))
    last, _ = head()
    if not 0 <= moment <= last:
        raise NotFound(f"there is no position {moment}; the log ends at #{last}", head=last)
    return moment


# SQLite would walk along the positions from the first
_ENDS = (
    "SELECT (SELECT max(position) FROM raw_events WHERE occurred_at <= %s), "
    f"(SELECT min({unindexed('position')}) FROM raw_events WHERE occurred_at > %s)"
)
# The position that divides events up to a time from later ones with the fewest on the wrong side, among those that a
# clock which was set back or ahead has put there. Times after the present are wrong, and count for neither side.
_DIVIDING = (
    "SELECT position, balance FROM (SELECT position, sum(CASE WHEN occurred_at <= %s THEN 1 WHEN occurred_at <= %s "
    "THEN -1 ELSE 0 END) OVER (ORDER BY position) AS balance FROM raw_events WHERE position BETWEEN %s AND %s) AS e "
    "ORDER BY balance DESC, position DESC LIMIT 1"
)


def _position_at_time(moment: str) -> int:
    last, later = rows.fetch(_ENDS, [moment, moment])[0]
    if last is None or later is None or later > last:
        return last or 0
    position, balance = rows.fetch(_DIVIDING, [moment, clock.to_text(clock.now()), later, last])[0]
    if balance < 0:
        return int(later) - 1
    return int(position)


def view_at(position: int) -> StoreId:
    """Return a view of the current store at ``position``; build it if it is not cached."""
    store = current_store()
    for _ in range(_ATTEMPTS):
        prefix = f"{key_of(store)}-{last_erasure()}-{schema.fingerprint()[:8]}"
        # Views of other versions, or left by a process that died after an erasure.
        views.remove_views(name for name, _ in views.view_names(store) if not name.startswith(f"{prefix}-"))
        views.remove_dead_drafts(store)
        view = StoreId(Scope.VIEW, f"{prefix}-{position}-{(digest_at(position) or GENESIS)[:8]}")
        if (stores.exists(view) or _make(view, store, prefix, position)) and views.touch_view(view):
            _keep_few(store, prefix, view)
            return view
    raise Locked("events were erased while the view was built; try again")


def _make(view: StoreId, store: StoreId, prefix: str, position: int) -> bool:
    def is_unerased() -> bool:
        return prefix.startswith(f"{key_of(store)}-{last_erasure()}-")

    earlier: list[tuple[int, str]] = []
    for name, _ in views.view_names(store, prefix):
        match = re.fullmatch(rf"{prefix}-(\d+)-\w+", name)
        if match and int(match[1]) <= position:
            earlier.append((int(match[1]), name))
    _, nearest = max(earlier, default=(0, None))
    fill = partial(StoreDraft(store).fill, up_to=position)
    return views.make_view(view, store, like=nearest, fill=fill, may_publish=is_unerased)


def _keep_few(store: StoreId, prefix: str, newest: StoreId) -> None:
    latest = (clock.now() + clock.MISDATED_AFTER).timestamp()
    by_use = {name: (used_at < latest, used_at, name) for name, used_at in views.view_names(store, prefix)}
    by_use.pop(newest.name, None)
    views.remove_views(sorted(by_use, key=by_use.__getitem__)[: max(0, len(by_use) - KEPT + 1)])


def forget_views_early(store: StoreId | None = None) -> None:
    """Remove views in the transaction that removes text, because this process may die at the commit.

    ``forget_views`` must follow the commit. Default: the current store.
    """
    views.forget_views_early(store or current_store())


def forget_views(store: StoreId | None = None) -> None:
    """Remove all views of a store and all unfinished copies of it. Default: the current store."""
    views.forget_views(store or current_store())


def count_views() -> int:
    return len(views.view_names(current_store()))
