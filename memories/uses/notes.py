"""Notes of reads: one line with ids per read, in a small file beside the store. Never waits for the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from django.db import DatabaseError

from memories.scopes import Level
from memories.uses.events import NOTED, Use
from memoryhub.core import clock
from memoryhub.core.backends.selected import stores
from memoryhub.core.file_locks import wait_for_lock
from memoryhub.core.origin import current_origin
from memoryhub.core.stores.store import Scope, StoreId, current_store
from memoryhub.core.stores.store import folder_of as stores_folder_of

# A process writes to the file of its slot (pid modulo 16), so few share a lock. Files are bounded: where no worker
# folds them, or a write fails, notes are dropped.

FOLDER = "uses"
WAITING = ".notes"
# A file that the job folds
TAKEN = ".taken"
# Bytes of one file
MAX_BYTES = 64 * 1024

# Marks the name of a session in a line
_SESSION = "@"

_SLOTS = 16
_AT_ONCE = 100
# Interfaces used by agents and scripts; what a person reads in the admin is not a use
_AGENTS = frozenset({"mcp", "rest", "hook"})

_LETTERS = {use.value[:2]: use for use in NOTED}


@dataclass(frozen=True, slots=True)
class Note:
    # Unix time
    at: float
    use: Use
    ids: tuple[int, ...]
    # Name of the session that read them
    session: str = ""


def folder_of(store: StoreId) -> Path:
    return stores_folder_of(store) / FOLDER


def notes_files(store: StoreId) -> list[Path]:
    return sorted(folder_of(store).glob(f"*{WAITING}"))


def notes_size(store: StoreId) -> int:
    """Return the size of all waiting notes, which grows with each read."""
    size = 0
    for path in notes_files(store):
        with contextlib.suppress(FileNotFoundError):  # the job has just taken it
            size += path.stat().st_size
    return size


def note_read(use: Use, ids: Sequence[int], store: StoreId | None = None) -> None:
    if ids and current_origin().source in _AGENTS:
        _note(store or current_store(), use, ids)


def note_found(hits: Iterable[Mapping[str, Any]], stores: Mapping[str, StoreId]) -> None:
    """Note that an agent was shown hits, each with ``id`` and ``scope``; ``stores`` are by scope."""
    by_store: dict[StoreId, list[int]] = {}
    for hit in hits:
        by_store.setdefault(stores[hit["scope"]], []).append(hit["id"])
    for store, ids in by_store.items():
        note_read(Use.FOUND, ids, store)


def note_packed(references: Iterable[str], chain: Sequence[Level]) -> None:
    """Note what a pack included from wider scopes (``global#12``); those of its own store are in its event."""
    named = [reference.partition("#") for reference in references]
    for level in chain[1:]:
        ids = [int(number) for scope, _, number in named if scope == level.scopes[-1]]
        if ids:
            _note(level.store, Use.GIVEN, ids)


def _note(store: StoreId, use: Use, ids: Sequence[int]) -> None:
    if store.scope is Scope.VIEW:
        return
    session = f"{_SESSION}{quote(current_origin().session_id)} " if current_origin().session_id else ""
    line = f"{clock.now_ns() // 1_000_000} {use.value[:2]} {session}{' '.join(map(str, ids[:_AT_ONCE]))}\n"
    path = folder_of(store) / f"{os.getpid() % _SLOTS:02d}{WAITING}"
    with contextlib.suppress(OSError, DatabaseError):
        _append(store, path, line.encode())


def _append(store: StoreId, path: Path, line: bytes) -> None:
    while True:
        descriptor = _open(store, path)
        try:
            wait_for_lock(descriptor)
            if not _is_still(path, descriptor):  # the job has renamed it: open a new one
                continue
            size = os.fstat(descriptor).st_size
            if size + len(line) <= MAX_BYTES and os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, size)
            return
        finally:
            os.close(descriptor)


def _open(store: StoreId, path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        if stores.exists(store):  # the folder of a removed store must not come back
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def read_notes(path: Path) -> Iterator[Note]:
    for line in path.read_bytes().decode("ascii", "replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, IndexError):
            at, letters, *ids = line.split()
            session = unquote(ids.pop(0)[1:]) if ids[0][0] == _SESSION else ""
            yield Note(int(at) / 1000, _LETTERS[letters], tuple(map(int, ids)), session)


def waiting_notes(store: StoreId) -> Iterator[Note]:
    """Yield the notes that are not in an event yet."""
    for path in [*notes_files(store), *folder_of(store).glob(f"*{TAKEN}")]:
        with contextlib.suppress(OSError):
            yield from read_notes(path)
