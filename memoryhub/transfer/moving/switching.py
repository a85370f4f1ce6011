"""The two sides of a move: a process for each place, and the switch from one to the other."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from memoryhub import env
from memoryhub.core.autostart import module_command, module_environment
from memoryhub.core.backends.base import Departure
from memoryhub.core.backends.selected import places
from memoryhub.core.errors import ConflictError, HubError, Invalid, Locked, Moved, NotFound, Unavailable
from memoryhub.core.stores.store_id import StoreId

# Longer than the lease of a process that was killed
_LOCK_SECONDS = 25.0
# What the epoch of an undo ends with, after that of the move
_BACK = "-back"


@dataclass(frozen=True, slots=True)
class Moving:
    """What a move did."""

    address: str
    events: int
    # How long writers waited, in seconds; 0 if an interrupted move was finished
    held: float = 0.0
    # Whether an earlier move had moved it
    already: bool = False


@contextmanager
def both(store: StoreId, source: DatabasePlace, target: DatabasePlace) -> Iterator[tuple[Peer, Peer]]:
    """Start a process in both places, and keep other moves of the store out of them.

    Raises:
        Locked: another move of the store runs.
    """
    with Peer(source) as leaving, Peer(target) as arriving:
        # In one order, whatever the direction
        for peer in sorted((leaving, arriving), key=lambda peer: peer.place.url):
            lock(peer, store)
        yield leaving, arriving


def lock(peer: Peer, store: StoreId) -> None:
    peer.call("lock", store=store.text, seconds=_LOCK_SECONDS)


def assign(store: StoreId, place: DatabasePlace) -> None:
    """Record which server has a store, after its arrival: until then the old place says where the store has gone."""
    places.assign(store, "" if place.url in ("", env.database_url()) else place.name)


def where(store: StoreId, *peers: Peer) -> list[dict[str, Any]]:
    return [peer.call("where", store=store.text) for peer in peers]


def departure_of(answer: dict[str, Any]) -> Departure | None:
    return Departure(**answer["departure"]) if answer["departure"] else None


def back(departure: Departure) -> str:
    """Return the epoch of the undo of a move."""
    return departure.epoch + _BACK


def is_back(departure: Departure) -> bool:
    return departure.epoch.endswith(_BACK)


def require_this_way(store: StoreId, departure: Departure, to: Peer) -> None:
    """Raise Moved if a store has gone to another place than that of ``to``.

    An address alone does not say so: a database can have several.
    """
    (states,) = where(store, to)
    marks = [states.get("arrival"), states["departure"]]
    epochs = {*states["drafts"], *(mark["epoch"] for mark in marks if mark)}
    move = departure.epoch.removesuffix(_BACK)
    if states["address"] != departure.address and epochs.isdisjoint((move, move + _BACK)):
        raise Moved(f"{store.scope} {store.name!r} has moved to {departure.address}, not to {states['address']}")


def switch(store: StoreId, leaving: Peer, arriving: Peer, departure: Departure) -> bool:
    """Let a fenced store arrive; return False if it could not, and takes writes in its old place again."""
    try:
        arriving.call(
            "arrive", store=store.text, epoch=departure.epoch, position=departure.position, digest=departure.digest
        )
    except ConflictError:  # the place has a store of that name, or no draft: perhaps because it has arrived
        return not cancel(store, leaving, arriving, departure)
    leaving.call("mark_left", store=store.text)
    return True


def cancel(store: StoreId, leaving: Peer, arriving: Peer, departure: Departure) -> bool:
    """Let a fenced store take writes in its old place again; return False if it has arrived in the new one."""
    named = store.text
    arriving.call("discard_draft", store=named, epoch=departure.epoch)
    if arriving.call("has_arrived", store=named, departure=asdict(departure)):
        leaving.call("mark_left", store=named)
        return False
    (there,) = where(store, arriving)
    begun = departure_of(there)
    if begun and begun.epoch > departure.epoch:
        raise Moved(f"{store.scope} {store.name!r} has moved on to {begun.address}")
    leaving.call("come_back", store=named, epoch=departure.epoch)
    return True


def go_back(store: StoreId, leaving: Peer, arriving: Peer, departure: Departure) -> Moving:
    """Finish an undo, whose fence is in the new place: the old one has all of the log, and takes writes again.

    Args:
        store: what moves.
        leaving: the place that the move had left.
        arriving: the place that it had gone to.
        departure: from ``arriving``, by the undo.
    """
    named = store.text
    (here,) = where(store, leaving)
    previous = departure_of(here)
    if previous and back(previous) == departure.epoch:
        leaving.call("come_back", store=named, epoch=previous.epoch)
    elif cancel(store, arriving, leaving, departure):  # the copy was removed, so it can never come back
        raise Unavailable(f"the copy in {here['address']} is gone, so {store.name!r} stays where it is")
    arriving.call("mark_left", store=named)
    assign(store, leaving.place)  # before this can't be repeated, because nothing says any more what to undo
    arriving.call("remove_kept", store=named, epoch=departure.epoch)
    return Moving(here["address"], departure.position)


def finish(store: StoreId, leaving: Peer, arriving: Peer) -> Moving | None:
    """Finish a move or an undo between two places that was interrupted after its fence.

    Returns:
        What was moved to ``arriving``; None if the store is, or is again, in ``leaving``.

    Raises:
        ConflictError: there is another one of its name.
        Moved: the store has gone to a third place, or its move is confirmed.
        Unavailable: the copy was gone, so the store takes writes in its old place again.
    """
    here, there = where(store, leaving, arriving)
    ours, theirs = departure_of(here), departure_of(there)
    if theirs and theirs.kept and not here["exists"] and (ours is None or theirs.epoch > ours.epoch):
        require_this_way(store, theirs, leaving)
        if is_back(theirs):
            go_back(store, leaving, arriving, theirs)
        elif not switch(store, arriving, leaving, theirs):
            return Moving(there["address"], theirs.position)
        return None
    if ours is None:
        return None
    if not ours.kept:
        raise Moved(f"{store.scope} {store.name!r} has moved to {ours.address} already; move it from there")
    require_this_way(store, ours, arriving)
    if switch(store, leaving, arriving, ours):
        return Moving(there["address"], ours.position, already=there["exists"])
    if there["exists"]:
        raise ConflictError(f"there is a {store.scope} {store.name!r} in {there['address']} already")
    raise Unavailable(
        f"the copy in {ours.address} is gone, so {store.name!r} takes writes in its old place again; run the move again"
    )


_ERRORS: dict[str, type[HubError]] = {kind.code: kind for kind in (ConflictError, Invalid, Locked, Moved, NotFound)}


@dataclass(frozen=True, slots=True)
class DatabasePlace:
    """A database that can have stores."""

    # As `memory-hub move` takes it; "" if only its address names it
    name: str
    # "" for files in the home
    url: str


class Peer:
    """A process that works in a place."""

    def __init__(self, place: DatabasePlace) -> None:
        self.place = place
        self._process = subprocess.Popen(  # noqa: S603
            module_command("memoryhub.transfer.moving.side"),
            env=module_environment(**{env.DATABASE_VARIABLE: place.url or env.FILES}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C ends this process first, and the other one with its input
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # It ends with its input, and rolls back what is open
        self._process.communicate()

    def call(self, name: str, **arguments: Any) -> Any:
        self.ask(name, **arguments)
        return self.answer()

    def ask(self, name: str, **arguments: Any) -> None:
        self.write(json.dumps([name, arguments]).encode() + b"\n")

    def answer(self) -> Any:
        line = self._out.readline()
        if not line:
            raise self._ended()
        answer = json.loads(line)
        if "error" in answer:
            raise _ERRORS.get(answer["code"], Unavailable)(answer["error"])
        return answer["result"]

    def copy_to(self, other: Peer, *, after: int) -> int:
        """Send the open log's events after a position to the other's draft; return how many there were."""
        self.call("send", after=after)
        other.ask("take")
        while (line := self._out.readline()) != b"\n":
            if not line:
                raise self._ended()
            other.write(line)
        other.write(line)
        count: int = other.answer()
        return count

    def write(self, line: bytes) -> None:
        assert self._process.stdin  # noqa: S101 - a pipe
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    @property
    def _out(self) -> Any:
        return self._process.stdout

    def _ended(self) -> Unavailable:
        return Unavailable(f"the process that works in {self.place.name or 'the other place'} has ended; try again")
