"""What one side of a move can be asked to do; stores and results are given as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any

from django.db import transaction

from memoryhub.core import log
from memoryhub.core.backends.base import Anchor, Departure
from memoryhub.core.backends.selected import anchors, machines, places, stores
from memoryhub.core.errors import Locked, Unavailable
from memoryhub.core.events.projection import finish_rebuild
from memoryhub.core.log.adopting import insert_columns
from memoryhub.core.log.append import COLUMNS
from memoryhub.core.log.copy import apply_events
from memoryhub.core.log.read import last_erasure
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import ARRIVAL, GLOBAL_STORE, Scope, StoreId, arrival, current_store, use_store

_PAGE = 5000
# Marks that are about a copy of a store, not about its content
_OWN_MARKS = ("fingerprint", "search_form", "unwiped", "departure")
_RETRY_SECONDS = 0.2


@contextmanager
def locked(store: str, seconds: float) -> Iterator[None]:
    """Keep other moves of a store out while this process lives.

    Raises:
        Locked: another one runs for longer than ``seconds``.
    """
    until = time.monotonic() + seconds
    while True:
        with machines.holding(f"move-{store.replace(':', '-')}") as lease:
            if lease:
                yield
                return
        if time.monotonic() > until:
            raise Locked(f"another `memory-hub move` works on {store}; wait for it, or stop it and try again")
        time.sleep(_RETRY_SECONDS)


# Stores that are opened, and stay open for the steps that follow


@contextmanager
def read(store: str) -> Iterator[dict[str, Any]]:
    with use_store(StoreId.parse(store)):
        yield end()


@contextmanager
def hold(store: str) -> Iterator[dict[str, Any]]:
    """Hold the store's write lock; the log was checked against its anchor."""
    with use_store(StoreId.parse(store)), log.transaction():
        yield end()


@contextmanager
def draft(store: str, epoch: str) -> Iterator[None]:
    with places.draft(StoreId.parse(store), epoch):
        yield None


@contextmanager
def departed_copy(store: str) -> Iterator[dict[str, Any]]:
    with places.kept_copy(StoreId.parse(store)):
        yield end()


OPENING: Mapping[str, Callable[..., AbstractContextManager[Any]]] = {
    "read": read,
    "hold": hold,
    "draft": draft,
    "departed_copy": departed_copy,
}


def address(store: str) -> str:
    return stores.location(StoreId.parse(store))


def where(store: str) -> dict[str, Any]:
    """Return what is here of a store, and the mark of its arrival."""
    named = StoreId.parse(store)
    departure = places.departure(named)
    places_of_store = {
        "address": stores.location(named),
        "departure": asdict(departure) if departure else None,
        "drafts": places.drafts(named),
        "exists": departure is None and stores.exists(named),
    }
    if places_of_store["exists"]:
        with use_store(named):
            places_of_store |= {"arrival": arrival(), **end()}
    return places_of_store


def has_arrived(store: str, departure: dict[str, Any]) -> bool:
    """Return whether the store is here, and has all of the log that left with a move."""
    named = StoreId.parse(store)
    if not stores.exists(named):
        return False
    with use_store(named):
        mark = arrival()
        if mark and mark["epoch"] == departure["epoch"]:
            return True
        return bool(log.digest_at(departure["position"]) == departure["digest"])


def stores_here(*, departed: bool) -> list[str]:
    """Return the stores of this place, or those that have left it and are kept."""
    if departed:
        listed = places.kept_stores()
    else:
        listed = [GLOBAL_STORE] if stores.exists(GLOBAL_STORE) else []
        for scope in (Scope.ORG, Scope.PROJECT):
            listed += [StoreId(scope, name) for name in stores.names(scope)]
    return [store.text for store in listed]


def end() -> dict[str, Any]:
    return {"head": log.head(), "erasure": last_erasure()}


def events(after: int) -> Iterator[tuple[Any, ...]]:
    while page := list(log.events().window(after=after).values_list(*COLUMNS)[:_PAGE]):
        yield from page
        after = page[-1][0]


def take(lines: Iterable[list[Any]]) -> int:
    """Add events to the open draft as they are, and apply them; return how many there were."""
    last, count = log.head()[0], 0
    remaining = iter(lines)
    while page := list(islice(remaining, _PAGE)):
        with transaction.atomic(using=require_current_alias()), rows.gathering():
            for event in page:
                insert_columns(event)
        count += len(page)
    apply_events(last)
    return count


def complete() -> None:
    """Check the chain of the open draft, and do what follows a rebuild.

    Raises:
        Unavailable: the chain does not hold.
    """
    verified = log.verify()
    if not verified.ok:
        raise Unavailable(f"nothing was moved: {verified.describe()}; run `memory-hub doctor`")
    finish_rebuild()


def marks() -> dict[str, str]:
    marks_of_store = rows.fetch("SELECT key, value FROM store_meta")
    return {key: value for key, value in marks_of_store if key not in (*_OWN_MARKS, ARRIVAL)}


def put_marks(marks: dict[str, str], arrival: dict[str, Any]) -> None:
    with transaction.atomic(using=require_current_alias()):
        for key, value in {**marks, ARRIVAL: json.dumps(arrival)}.items():
            rows.put_meta(key, value)


def leave(departure: dict[str, Any]) -> None:
    places.leave(current_store(), Departure(**departure))


def arrive(store: str, epoch: str, position: int, digest: str) -> None:
    places.arrive(StoreId.parse(store), epoch, Anchor(position, digest))


def anchor(store: str) -> tuple[int, str] | None:
    stored = anchors.read(StoreId.parse(store))
    return (stored.position, stored.digest) if stored else None


def remove_kept(store: str, epoch: str) -> None:
    log.forget_views(StoreId.parse(store))
    places.remove_kept(StoreId.parse(store), epoch)


def settle(store: str, epoch: str) -> None:
    """Forget where a store came from with a move: its old place is gone."""
    with use_store(StoreId.parse(store)):
        mark = arrival()
        if mark and mark["epoch"] == epoch:
            rows.execute("DELETE FROM store_meta WHERE key = %s AND value = %s", [ARRIVAL, json.dumps(mark)])


STEPS: Mapping[str, Callable[..., Any]] = {
    "address": address,
    "anchor": anchor,
    "arrive": arrive,
    "complete": complete,
    "digest_at": log.digest_at,
    # Rows and digests of the log and of all read models, by table
    "digests": partial(log.table_digests, with_log=True),
    "end": end,
    "has_arrived": has_arrived,
    "leave": leave,
    "marks": marks,
    "put_marks": put_marks,
    "remove_kept": remove_kept,
    "settle": settle,
    "stores_here": stores_here,
    "where": where,
    **{
        name: lambda store, name=name, **arguments: getattr(places, name)(StoreId.parse(store), **arguments)
        for name in ("come_back", "create_draft", "discard_draft", "mark_left", "prepare_to_leave")
    },
}
