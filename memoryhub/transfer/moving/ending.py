"""What follows a move: confirm it, which removes the old place, or undo it (decision 79)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from memoryhub.core import clock
from memoryhub.core.backends.base import Departure
from memoryhub.core.errors import Conflict, NotFound
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores.store_id import StoreId
from memoryhub.transfer.moving.moving import Progress, move
from memoryhub.transfer.moving.peer import Peer, Place
from memoryhub.transfer.moving.switching import (
    Moving,
    assign,
    back,
    both,
    cancel,
    departure_of,
    go_back,
    is_back,
    require_this_way,
    switch,
    text_of,
    where,
)


def confirm(store: StoreId, source: Place, target: Place) -> Moving:
    """Remove a store's old place, after the new one was compared with it.

    Raises:
        NotFound: the store has not moved from there, or the move is confirmed.
        Conflict: the new place does not have what the old one has.
        Locked: another move of the store runs.
    """
    demand(Act.GOVERN, to="move a store", place=store.place)
    with both(store, source, target) as (leaving, arriving):
        here, there = where(store, leaving, arriving)
        departure = departure_of(here)
        if departure is None:
            raise _not_moved(store, here["address"])
        if not departure.kept:
            if not _has_mark(there, departure):
                raise _confirmed(store, departure)
            return _settle(store, arriving, departure, there["address"])  # it was interrupted
        later = departure_of(there)
        if later and later.epoch > departure.epoch and later.address != here["address"]:
            raise Conflict(f"{store.name!r} has moved on to {later.address}; name that place with --to")
        if not there["exists"]:
            raise Conflict(f"{store.name!r} has not arrived in {there['address']}; run the move again")
        _compare(store, leaving, arriving, departure)
        assign(store, target)  # the move may have been interrupted before it did
        leaving.call("remove_kept", store=text_of(store), epoch=departure.epoch)
        return _settle(store, arriving, departure, there["address"])


def _has_mark(there: dict[str, Any], departure: Departure) -> bool:
    mark = there.get("arrival")
    return bool(mark and mark["epoch"] == departure.epoch)


def _settle(store: StoreId, arriving: Peer, departure: Departure, address: str) -> Moving:
    arriving.call("settle", store=text_of(store), epoch=departure.epoch)
    return Moving(address, departure.position)


def _not_moved(store: StoreId, address: str) -> NotFound:
    return NotFound(f"{store.scope} {store.name!r} has not moved from {address}")


def _confirmed(store: StoreId, departure: Departure) -> NotFound:
    return NotFound(f"the move of {store.scope} {store.name!r} to {departure.address} is confirmed already")


def _compare(store: StoreId, leaving: Peer, arriving: Peer, departure: Departure) -> None:
    kept = leaving.call("kept", store=text_of(store))
    end = arriving.call("read", store=text_of(store))
    same = arriving.call("digest_at", position=departure.position) == departure.digest == kept["head"][1]
    if same and end["head"] == kept["head"]:
        for peer in (leaving, arriving):
            peer.ask("digests")
        here, there = (peer.answer() for peer in (leaving, arriving))
        same = here == there
    for peer in (leaving, arriving):
        peer.call("close")
    if not same:
        raise Conflict(
            f"{store.name!r} is not the same in its new place, so the old one is kept; run `memory-hub doctor`"
        )


def undo(store: StoreId, source: Place, target: Place, progress: Progress = lambda _: None) -> Moving:
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
        done = _undone(store, leaving, arriving)
        if done:
            assign(store, source)
            return done
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
        return _discard(store, leaving, arriving)
    if not ours.kept:
        raise _confirmed(store, ours)
    require_this_way(store, ours, arriving)
    if cancel(store, leaving, arriving, ours):
        return Moving(here["address"], ours.position)
    return _return(store, leaving, arriving, ours)


# Of a move that was interrupted before its fence
def _discard(store: StoreId, leaving: Peer, arriving: Peer) -> Moving:
    here, there = where(store, leaving, arriving)
    if not there["drafts"]:
        raise _not_moved(store, here["address"])
    for epoch in there["drafts"]:
        arriving.call("discard_draft", store=text_of(store), epoch=epoch)
    return Moving(here["address"], here["head"][0] if "head" in here else 0)


def _return(store: StoreId, leaving: Peer, arriving: Peer, departure: Departure) -> Moving | None:
    arriving.call("prepare_to_leave", store=text_of(store))
    held = arriving.call("hold", store=text_of(store))
    if held["head"] != [departure.position, departure.digest]:
        arriving.call("abort")
        return None
    fence = Departure(
        back(departure),
        leaving.place.name,
        leaving.call("address", store=text_of(store)),
        clock.to_text(clock.now()),
        departure.position,
        departure.digest,
    )
    arriving.call("leave", departure=asdict(fence))
    arriving.call("close")
    return go_back(store, leaving, arriving, fence)
