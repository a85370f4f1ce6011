"""Move a store to another database, then confirm or undo the move; the databases have names."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from memoryhub import env
from memoryhub.core import clock, ids
from memoryhub.core.backends.base import Departure
from memoryhub.core.backends.selected import ENGINE, places, stores
from memoryhub.core.errors import ConflictError, HubError, Invalid, Locked, NotFound, Unavailable
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores.store import arrival, use_store
from memoryhub.core.stores.store_id import StoreId
from memoryhub.transfer.moving.switching import (
    DatabasePlace,
    Moving,
    Peer,
    assign,
    back,
    both,
    cancel,
    departure_of,
    finish,
    go_back,
    is_back,
    require_this_way,
    switch,
    where,
)

_ATTEMPTS = 3
_ROUNDS = 5
# So few events are copied while writers wait
_FEW = 100

Progress = Callable[[str], None]


class _Erased(Exception):
    """Text was erased since the copy was begun: the copy must not have it."""


def move(store: StoreId, source: DatabasePlace, target: DatabasePlace, progress: Progress = lambda _: None) -> Moving:
    """Move a store; writers are refused while the last events are copied and both places are compared.

    The old place is kept, fenced, until ``confirm`` or ``undo``. An interrupted move is finished.

    Raises:
        NotFound: there is no such store in the source.
        ConflictError: there is one in the target.
        Moved: it has moved to a third place, or the move is confirmed.
        Locked: text was erased during each attempt, or another move of the store runs.
        Unavailable: a place cannot be reached, or the copy differs.
        Forbidden: the caller may not govern the store.
    """
    demand(Act.GOVERN, to="move a store", place=store.place)
    with both(store, source, target) as (leaving, arriving):
        moving = finish(store, leaving, arriving) or _begin_move(store, leaving, arriving, progress)
        assign(store, target)
    return moving


def _begin_move(store: StoreId, leaving: Peer, arriving: Peer, progress: Progress) -> Moving:
    here, there = where(store, leaving, arriving)
    if not here["exists"]:
        if there["exists"]:
            raise ConflictError(f"{store.scope} {store.name!r} is in {there['address']} already")
        raise NotFound(f"there is no {store.scope} {store.name!r} in {here['address']}")
    if there["exists"]:
        raise ConflictError(f"there is a {store.scope} {store.name!r} in {there['address']} already")
    for epoch in there["drafts"]:
        arriving.call("discard_draft", store=store.text, epoch=epoch)
    marks = [here["arrival"], there["departure"]]
    moved = _Move(store, leaving, arriving, max((mark["epoch"] for mark in marks if mark), default=""))
    for _ in range(_ATTEMPTS):
        try:
            return moved.attempt(progress)
        except _Erased:
            continue
    raise Locked("events were erased during the move; nothing was moved, run it again")


class _Move:
    def __init__(self, store: StoreId, leaving: Peer, arriving: Peer, earlier: str) -> None:
        self._store, self._named = store, store.text
        self._leaving, self._arriving = leaving, arriving
        self._epoch = earlier
        self._count = 0

    def attempt(self, progress: Progress) -> Moving:
        self._count = 0
        earlier = self._epoch
        self._epoch = f"{clock.now():%Y%m%d%H%M%S}{ids.random_bytes(3).hex()}"
        if self._epoch <= earlier:  # a later move has a greater one, whatever the clocks of two machines say
            self._epoch = f"{earlier}z"
        self._arriving.call("create_draft", store=self._named, epoch=self._epoch)
        try:
            self._arriving.call("draft", store=self._named, epoch=self._epoch)
            erasure = self._copy_most(progress)
            started = time.monotonic()
            departure = self._copy_rest(erasure)
        except (HubError, _Erased):
            with suppress(Unavailable):  # the next move discards the draft
                self._leaving.call("abort")
                self._arriving.call("abort")
                self._arriving.call("discard_draft", store=self._named, epoch=self._epoch)
            raise
        # The commit of the fence decides the move: before it, the old place takes writes, after it, the new one
        self._leaving.call("close")
        if not switch(self._store, self._leaving, self._arriving, departure):
            raise ConflictError(
                f"there is a {self._store.scope} {self._store.name!r} in the new place now, or the copy is gone"
            )
        return Moving(departure.address, departure.position, time.monotonic() - started)

    def _copy_most(self, progress: Progress) -> int:
        erasure: int = self._leaving.call("read", store=self._named)["erasure"]
        for _ in range(_ROUNDS):
            added = self._leaving.copy_to(self._arriving, after=self._count)
            self._count += added
            progress(f"{self._count} events copied")
            if added < _FEW:
                break
        self._leaving.call("close")
        self._arriving.call("complete")
        self._leaving.call("prepare_to_leave", store=self._named)
        return erasure

    # Writers wait from here on
    def _copy_rest(self, erasure: int) -> Departure:
        held = self._leaving.call("hold", store=self._named)
        if held["erasure"] != erasure:
            raise _Erased
        self._count += self._leaving.copy_to(self._arriving, after=self._count)
        here, there = _digests(self._leaving, self._arriving)
        different = sorted(table for table in {*here, *there} if here.get(table) != there.get(table))
        if different:
            raise Unavailable(
                f"nothing was moved: the copy differs in {', '.join(different)}; run `memory-hub rebuild` first"
            )
        position, digest = held["head"]
        source, target = (peer.call("address", store=self._named) for peer in (self._leaving, self._arriving))
        departure = Departure(
            self._epoch, self._arriving.place.name, target, clock.to_text(clock.now()), position, digest
        )
        origin = {**asdict(departure), "name": self._leaving.place.name, "address": source}
        self._arriving.call("put_marks", marks=self._leaving.call("marks"), arrival=origin)
        self._arriving.call("close")
        self._leaving.call("leave", departure=asdict(departure))
        return departure


# Both at once: the tables of a large store take seconds
def _digests(*peers: Peer) -> list[dict[str, Any]]:
    for peer in peers:
        peer.ask("digests")
    return [peer.answer() for peer in peers]


def confirm(store: StoreId, source: DatabasePlace, target: DatabasePlace) -> Moving:
    """Remove a store's old place, after the new one was compared with it.

    Raises:
        NotFound: the store has not moved from there, or the move is confirmed.
        ConflictError: the new place does not have what the old one has.
        Locked: another move of the store runs.
    """
    demand(Act.GOVERN, to="move a store", place=store.place)
    with both(store, source, target) as (leaving, arriving):
        here, there = where(store, leaving, arriving)
        departure = departure_of(here)
        if departure is None:
            raise _not_moved(store, here["address"])
        if not departure.kept:
            mark = there.get("arrival")
            if not mark or mark["epoch"] != departure.epoch:
                raise _confirmed(store, departure)
            return _settle(store, arriving, departure, there["address"])  # it was interrupted
        later = departure_of(there)
        if later and later.epoch > departure.epoch and later.address != here["address"]:
            raise ConflictError(f"{store.name!r} has moved on to {later.address}; name that place with --to")
        if not there["exists"]:
            raise ConflictError(f"{store.name!r} has not arrived in {there['address']}; run the move again")
        _compare(store, leaving, arriving, departure)
        assign(store, target)  # the move may have been interrupted before it did
        leaving.call("remove_kept", store=store.text, epoch=departure.epoch)
        return _settle(store, arriving, departure, there["address"])


def _settle(store: StoreId, arriving: Peer, departure: Departure, address: str) -> Moving:
    arriving.call("settle", store=store.text, epoch=departure.epoch)
    return Moving(address, departure.position)


def _not_moved(store: StoreId, address: str) -> NotFound:
    return NotFound(f"{store.scope} {store.name!r} has not moved from {address}")


def _confirmed(store: StoreId, departure: Departure) -> NotFound:
    return NotFound(f"the move of {store.scope} {store.name!r} to {departure.address} is confirmed already")


def _compare(store: StoreId, leaving: Peer, arriving: Peer, departure: Departure) -> None:
    copy = leaving.call("departed_copy", store=store.text)
    end = arriving.call("read", store=store.text)
    same = arriving.call("digest_at", position=departure.position) == departure.digest == copy["head"][1]
    if same and end["head"] == copy["head"]:
        here, there = _digests(leaving, arriving)
        same = here == there
    for peer in (leaving, arriving):
        peer.call("close")
    if not same:
        raise ConflictError(
            f"{store.name!r} is not the same in its new place, so the old one is kept; run `memory-hub doctor`"
        )


def undo(store: StoreId, source: DatabasePlace, target: DatabasePlace, progress: Progress = lambda _: None) -> Moving:
    """Let a store's old place take writes again.

    If something was written in the new place since, the store moves back with it; the new place is then kept until
    ``confirm``, as after any move.

    Raises:
        NotFound: the store has not moved from there, or the move is confirmed.
        Moved: it has moved on to a third place.
        Locked: another move of the store runs.
    """
    demand(Act.GOVERN, to="move a store", place=store.place)
    with both(store, source, target) as (leaving, arriving):
        moving = _undone(store, leaving, arriving)
        if moving:
            assign(store, source)
            return moving
    return move(store, target, source, progress)


# None if the store must move back, with what was written
def _undone(store: StoreId, leaving: Peer, arriving: Peer) -> Moving | None:
    here, there = where(store, leaving, arriving)
    ours, theirs = departure_of(here), departure_of(there)
    if theirs and (theirs.kept if ours is None else theirs.epoch > ours.epoch):
        require_this_way(store, theirs, leaving)
        if is_back(theirs):
            return go_back(store, leaving, arriving, theirs)
        if switch(store, arriving, leaving, theirs):
            return Moving(here["address"], theirs.position)
    if ours is None:
        # Discard what a move left that was interrupted before its fence
        here, there = where(store, leaving, arriving)
        if not there["drafts"]:
            raise _not_moved(store, here["address"])
        for epoch in there["drafts"]:
            arriving.call("discard_draft", store=store.text, epoch=epoch)
        return Moving(here["address"], here["head"][0] if "head" in here else 0)
    if not ours.kept:
        raise _confirmed(store, ours)
    require_this_way(store, ours, arriving)
    if cancel(store, leaving, arriving, ours):
        return Moving(here["address"], ours.position)
    return _return(store, leaving, arriving, ours)


def _return(store: StoreId, leaving: Peer, arriving: Peer, departure: Departure) -> Moving | None:
    arriving.call("prepare_to_leave", store=store.text)
    held = arriving.call("hold", store=store.text)
    if held["head"] != [departure.position, departure.digest]:
        arriving.call("abort")
        return None
    fence = Departure(
        back(departure),
        leaving.place.name,
        leaving.call("address", store=store.text),
        clock.to_text(clock.now()),
        departure.position,
        departure.digest,
    )
    arriving.call("leave", departure=asdict(fence))
    arriving.call("close")
    return go_back(store, leaving, arriving, fence)


_POSTGRESQL = "postgresql"
_SCHEMES = ("postgresql://", "postgres://")
FILES = DatabasePlace(env.FILES, "")


@dataclass(frozen=True, slots=True)
class Way:
    source: DatabasePlace
    target: DatabasePlace


def place_named(name: str) -> DatabasePlace:
    """Return a place as `memory-hub move` takes it.

    Args:
        name: ``sqlite``, ``postgresql``, a name in ``[servers]`` of ``config.toml``, or an address.

    Raises:
        Invalid: nothing has this name.
    """
    if name == env.FILES:
        return FILES
    if name.startswith(_SCHEMES):
        names = {url: server for server, url in (*env.servers().items(), (_POSTGRESQL, _main()))}
        return DatabasePlace(names.get(name, ""), name)
    url = env.servers().get(name) or (_main() if name == _POSTGRESQL else "")
    if url:
        return DatabasePlace(name, url)
    if name == _POSTGRESQL:
        raise Invalid(
            f"no PostgreSQL is set: give its address as {env.DATABASE_VARIABLE}, as {env.DATABASE_SETTING} in "
            "config.toml, or in place of the word postgresql"
        )
    raise Invalid(
        f"{name!r} is no place: name sqlite, postgresql or one of [servers] in config.toml",
        choices=[env.FILES, _POSTGRESQL, *env.servers()],
    )


def _main() -> str:
    return env.database_url() or env.configured_database_url()


def own_place(store: StoreId) -> DatabasePlace:
    """Return where this hub has a store, or would have it."""
    if ENGINE == env.FILES:
        return FILES
    return place_named(places.server(store) or _POSTGRESQL)


def stores_in(place: DatabasePlace, *, departed: bool = False) -> list[StoreId]:
    """Return the stores in a place; with ``departed`` those that it keeps after they have moved."""
    with Peer(place) as peer:
        return [StoreId.parse(text) for text in peer.call("stores_here", departed=departed)]


def way_to(store: StoreId, target: DatabasePlace) -> Way:
    """Return from where a store can move to a place: from this hub, or to it from where this hub's store was.

    Raises:
        NotFound: nothing says that this hub's store is in another place.
    """
    here = own_place(store)
    if here.url != target.url:
        return Way(here, target)
    if departure := places.departure(store):
        return Way(_of(departure), target)
    if target.url:
        return Way(FILES, target)
    if stores.exists(store):
        raise NotFound(f"{store.scope} {store.name!r} is in that place already")
    raise NotFound(f"there is no {store.scope} {store.name!r} here; run this where it is")


def last_way(store: StoreId, named: DatabasePlace | None) -> Way:
    """Return the way of a store's last move, which is not confirmed yet.

    Args:
        store: in this hub, or gone from it.
        named: the place that it was moved to, or the one that it came from.
    """
    here = own_place(store)
    other = named
    if named and named.url == here.url:
        other = None
    if departure := places.departure(store):
        there = other or _of(departure)
        # An undo that was interrupted: the move was from there to here
        return Way(there, here) if is_back(departure) else Way(here, there)
    if stores.exists(store):
        with use_store(store):
            source = arrival()
        if source:
            return Way(other or _of(Departure(**source)), here)
    if other:
        return Way(here, other)
    raise NotFound(f"{store.scope} {store.name!r} has not moved, or the move is confirmed")


def forget(store: StoreId) -> Departure:
    """Forget where a store of this process's place has gone: one of its name may be created here again.

    Raises:
        NotFound: it has not moved from here.
        ConflictError: the move is not confirmed.
    """
    demand(Act.GOVERN, to="move a store", place=store.place)
    departure = places.departure(store)
    if departure is None:
        raise NotFound(f"{store.scope} {store.name!r} has not moved from {stores.location(store)}")
    if departure.kept:
        raise ConflictError(f"the old place of {store.name!r} is still kept; confirm or undo the move first")
    places.forget_departure(store)
    return departure


def _of(departure: Departure) -> DatabasePlace:
    if not departure.name:
        raise Invalid(f"the move was to {departure.address}; give its whole address with --to")
    return place_named(departure.name)
