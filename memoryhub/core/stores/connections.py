"""The connections of this process to the stores: one for each thread and store, closed only while nobody uses it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(frozen=True, slots=True)
class StoreFile:
    """Which file a store's alias stands for: a file that was put in its place is another one."""

    inode: int
    device: int


@dataclass(eq=False, slots=True, weakref_slot=True)
class Held:
    """One thread's connection to a store."""

    file: StoreFile
    connection: BaseDatabaseWrapper
    uses: int = 0
    """How many ``use_store`` blocks of its thread are open."""
    closed: bool = False


_files: OrderedDict[str, StoreFile] = OrderedDict()
_held: dict[str, WeakSet[Held]] = {}
# Guards these two, ``connections.settings``, and every ``uses`` and ``closed``; held for microseconds, and never while
# a connection is closed, which may take as long as a checkpoint.
_lock = threading.Lock()
_thread = threading.local()


def file_of(alias: str) -> StoreFile | None:
    """Return the file that an alias stands for; None where the alias is not open."""
    return _files.get(alias)


def open_aliases() -> list[str]:
    """Return the aliases of all open stores, that which was opened first at the front."""
    return list(_files)


def begin(alias: str, file: StoreFile, settings: dict[str, Any]) -> Held:
    """Connect this thread to a file that others do not see yet; ``publish`` or ``drop`` follows, and ``leave``."""
    with _lock:
        connections.settings = {**connections.settings, alias: settings}
        held = _mine()[alias] = Held(file, connections[alias], uses=1)
    return held


def publish(alias: str, held: Held) -> None:
    """Let all threads use the file that ``begin`` connected to."""
    with _lock:
        _files[alias] = held.file
        connections.settings = {**connections.settings, alias: held.connection.settings_dict}  # lost if dropped since
        _held.setdefault(alias, WeakSet()).add(held)


def hold(alias: str, file: StoreFile) -> Held | None:
    """Return this thread's connection for one more use; None where the file has to be opened first."""
    _close_stale()
    mine = _mine().get(alias)
    if mine is not None and mine.uses and mine.file != file:
        detach(alias)
    with _lock:
        held = _mine().get(alias)
        if held is None:
            if _files.get(alias) != file:
                return None
            held = _mine()[alias] = Held(_files[alias], connections[alias])
            _held.setdefault(alias, WeakSet()).add(held)
        elif not held.uses and (held.closed or _files.get(alias) != file):
            return None  # retired by another thread since we looked, or to be opened again
        held.uses += 1
        return held


def leave(alias: str, held: Held) -> None:
    """End one use of a connection; it is closed where its alias was dropped meanwhile."""
    with _lock:
        held.uses -= 1
    if _files.get(alias) is not held.file:
        _close_stale()


def detach(alias: str) -> None:
    """Close this thread's own connection, even inside its block: what follows there uses the file as it is then."""
    held = _mine().pop(alias, None)
    if held is None:
        return
    with _lock:
        closes, held.closed = not held.closed, True
    if closes:
        held.connection.close()
    del connections[alias]


def drop(alias: str) -> None:
    """Forget an alias: each thread closes its connection when it is done with it."""
    with _lock:
        _files.pop(alias, None)
        connections.settings = {key: value for key, value in connections.settings.items() if key != alias}
    _close_stale()


def retire(alias: str) -> None:
    """Forget the alias of a store that fails, and close the connections to it that no thread is using.

    SQLite's connections of one process share what they know of a file (that its WAL index is read-only, say), so a
    new one sees the repair only after the last of these is closed. A connection in use is closed by its own thread
    when that leaves its block: closing it under a running statement crashes the process.
    """
    drop(alias)
    with _lock:
        idle = [held for held in _held.get(alias, ()) if _may_close(held)]
    for held in idle:
        held.connection.connection = None  # closes it, as the last reference to it


def _close_stale() -> None:
    """Close this thread's connections whose alias was dropped or opened again, but for those in use."""
    for alias, held in list(_mine().items()):
        if held.uses or _files.get(alias) is held.file:
            continue
        with _lock:
            closes = _may_close(held)
        if closes:
            held.connection.close()
        del _mine()[alias]
        del connections[alias]


def _may_close(held: Held) -> bool:
    """Return whether the caller, who holds ``_lock``, is the one to close a connection."""
    if held.uses or held.closed:
        return False
    held.closed = True
    return True


def _mine() -> dict[str, Held]:
    mine: dict[str, Held] = _thread.__dict__.setdefault("held", {})
    return mine
