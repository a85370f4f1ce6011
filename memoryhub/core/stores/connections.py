"""This process's connections to stores: one per thread and store, closed only while no thread uses them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(eq=False, slots=True, weakref_slot=True)
class HeldConnection:
    # What is behind the alias: it differs once another store of its name has replaced it.
    identity: Hashable
    connection: BaseDatabaseWrapper
    # Open ``use_store`` blocks of its thread.
    uses: int = 0
    closed: bool = False


_identities: OrderedDict[str, Hashable] = OrderedDict()
_held: dict[str, WeakSet[HeldConnection]] = {}
# Guards these two, ``connections.settings``, and every ``uses`` and ``closed``. It is taken for microseconds, never
# while a connection is closed, because that may run a checkpoint.
_lock = threading.Lock()
_thread = threading.local()


def identity_of(alias: str) -> Hashable | None:
    return _identities.get(alias)


def open_aliases() -> list[str]:
    return list(_identities)


def begin(alias: str, identity: Hashable, settings: dict[str, Any]) -> HeldConnection:
    """Connect this thread to a file unknown to other threads; call ``publish`` or ``drop`` next, then ``leave``."""
    with _lock:
        connections.settings = {**connections.settings, alias: settings}
        held = _mine()[alias] = HeldConnection(identity, connections[alias], uses=1)
    return held


def publish(alias: str, held: HeldConnection) -> None:
    """Make the file from ``begin`` available to all threads."""
    with _lock:
        _identities[alias] = held.identity
        connections.settings = {**connections.settings, alias: held.connection.settings_dict}  # lost if dropped since
        _held.setdefault(alias, WeakSet()).add(held)


def hold(alias: str, identity: Hashable) -> HeldConnection | None:
    _close_stale()
    mine = _mine().get(alias)
    if mine is not None and mine.uses and mine.identity != identity:
        detach(alias)
    with _lock:
        held = _mine().get(alias)
        if held is None:
            if _identities.get(alias) != identity:
                return None
            held = _mine()[alias] = HeldConnection(_identities[alias], connections[alias])
            _held.setdefault(alias, WeakSet()).add(held)
        elif not held.uses and (held.closed or _identities.get(alias) != identity):
            return None  # retired by another thread meanwhile, or replaced by another file
        held.uses += 1
        return held


def leave(alias: str, held: HeldConnection) -> None:
    with _lock:
        held.uses -= 1
    if _identities.get(alias) is not held.identity:
        _close_stale()


def detach(alias: str) -> None:
    """Close this thread's own connection, even inside its block; the next statement opens the present file."""
    held = _mine().pop(alias, None)
    if held is None:
        return
    with _lock:
        closes = not held.closed
        held.closed = True
    if closes:
        held.connection.close()
    del connections[alias]


def drop(alias: str) -> None:
    with _lock:
        _identities.pop(alias, None)
        connections.settings = {key: value for key, value in connections.settings.items() if key != alias}
    _close_stale()


def retire(alias: str) -> None:
    """Forget the alias of a failing store, and close the connections to it that no thread is using."""
    drop(alias)
    with _lock:
        # SQLite shares what it knows of a file between the connections of a process (for example that its WAL index
        # is read-only), so a new connection sees a repair only after the last old one is closed. A connection in use
        # is closed by its own thread when it leaves its block: closing it under a running statement crashes the
        # process.
        idle = [held for held in _held.get(alias, ()) if _may_close(held)]
    for held in idle:
        held.connection.connection = None  # closes it, as the last reference to it


def _close_stale() -> None:
    for alias, held in list(_mine().items()):
        if held.uses or _identities.get(alias) is held.identity:
            continue
        with _lock:
            closes = _may_close(held)
        if closes:
            held.connection.close()
        del _mine()[alias]
        del connections[alias]


def _may_close(held: HeldConnection) -> bool:
    if held.uses or held.closed:
        return False
    held.closed = True
    return True


def _mine() -> dict[str, HeldConnection]:
    mine: dict[str, HeldConnection] = _thread.__dict__.setdefault("held", {})
    return mine
