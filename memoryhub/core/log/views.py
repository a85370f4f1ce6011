"""Views: a store at a past position, rebuilt from its log and cached."""

# A view contains the text of its time, so it must disappear when text is erased: its name has the position of the
# last erasure, an erasure removes all views of its store, and a view that is being built meanwhile is discarded.

from __future__ import annotations

import re

from memoryhub.core import clock
from memoryhub.core.backends.selected import stores, views
from memoryhub.core.errors import Locked
from memoryhub.core.log.copy import follow
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.read import digest_at, last_erasure
from memoryhub.core.stores import schema
from memoryhub.core.stores.store import Scope, StoreId, current_store
from memoryhub.core.stores.store_id import key_of

# Views per store; the least recently used one is removed first.
KEPT = 4

_ATTEMPTS = 3


def view_at(position: int) -> StoreId:
    """Return a view of the current store at ``position``; build it if it is not cached."""
    store = current_store()
    for _ in range(_ATTEMPTS):
        prefix = f"{key_of(store)}-{last_erasure()}-{schema.fingerprint()[:8]}"
        _remove_others(store, prefix)
        view = StoreId(Scope.VIEW, f"{prefix}-{position}-{(digest_at(position) or GENESIS)[:8]}")
        if (stores.exists(view) or _make(view, store, prefix, position)) and views.touch_view(view):
            _keep_few(store, prefix, view)
            return view
    raise Locked("events were erased while the view was built; try again")


def _make(view: StoreId, store: StoreId, prefix: str, position: int) -> bool:
    def is_unerased() -> bool:
        return prefix.startswith(f"{key_of(store)}-{last_erasure()}-")

    nearest = max(((at, name) for at, name in _positions(store, prefix) if at <= position), default=(0, None))[1]
    return views.make_view(
        view, store, like=nearest, fill=lambda: follow(store, up_to=position), may_publish=is_unerased
    )


def _positions(store: StoreId, prefix: str) -> list[tuple[int, str]]:
    found = [(re.fullmatch(rf"{prefix}-(\d+)-\w+", name), name) for name, _ in views.view_names(store, prefix)]
    return [(int(match[1]), name) for match, name in found if match]


def _keep_few(store: StoreId, prefix: str, newest: StoreId) -> None:
    latest = (clock.now() + clock.MISDATED_AFTER).timestamp()
    by_use = sorted(
        (used_at < latest, used_at, name) for name, used_at in views.view_names(store, prefix) if name != newest.name
    )
    views.remove_views(name for *_, name in by_use[: max(0, len(by_use) - KEPT + 1)])


def _remove_others(store: StoreId, prefix: str) -> None:
    # Views of other versions, or left by a process that died after an erasure.
    views.remove_views(name for name, _ in views.view_names(store) if not name.startswith(f"{prefix}-"))
    views.remove_abandoned_views(store)


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
