"""The anchor of a store as a file beside it, ``head``: one line of fixed width, overwritten in place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memoryhub.core.backends.base import Anchor
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import Locked
from memoryhub.core.file_locks import lock
from memoryhub.core.stores.store_id import StoreId

_WIDTH = 128
_SYNC_SECONDS = 1.0
_LOCK_SECONDS = 1.0
# After a timeout, later writers do not wait for the lock until this many seconds have passed.
_SKIP_WAIT_SECONDS = 10.0

_synced_at: dict[StoreId, float] = {}
_stuck_at: dict[StoreId, float] = {}


def anchor_path(store: StoreId) -> Path:
    return path_of(store).with_name("head")


def exists(store: StoreId) -> bool:
    try:
        return bool(anchor_path(store).read_bytes().strip(b"\0"))
    except FileNotFoundError:
        return False


# A power cut can leave an empty file, or one of zeros
def read(store: StoreId) -> Anchor | None:
    try:
        content = anchor_path(store).read_bytes()
    except FileNotFoundError:
        return None
    return _parse(content) if content.strip(b"\0") else None


def known(store: StoreId) -> list[Anchor]:
    found = read(store)
    return [found] if found else []


def advance(store: StoreId, anchor: Anchor, *, holds: Callable[[], bool]) -> None:
    try:
        with _locked(store, _lock_timeout(store)) as descriptor:
            if _position(os.pread(descriptor, _WIDTH, 0)) < anchor.position and holds():
                os.pwrite(descriptor, _line(anchor), 0)
                _sync_if_due(store, descriptor)
        _stuck_at.pop(store, None)
    except Locked:
        _stuck_at[store] = time.monotonic()
        raise


def replace(store: StoreId, anchor: Anchor) -> None:
    with _locked(store, _LOCK_SECONDS) as descriptor:
        os.pwrite(descriptor, _line(anchor), 0)
        os.fsync(descriptor)


def remove(store: StoreId) -> None:
    anchor_path(store).unlink(missing_ok=True)


@contextmanager
def _locked(store: StoreId, seconds: float) -> Iterator[int]:
    descriptor = os.open(anchor_path(store), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock(descriptor, seconds=seconds):
            raise Locked(f"the anchor of {store.name!r} is locked by another process")
        yield descriptor
    finally:
        os.close(descriptor)


def _lock_timeout(store: StoreId) -> float:
    stuck = time.monotonic() - _stuck_at.get(store, -_SKIP_WAIT_SECONDS) < _SKIP_WAIT_SECONDS
    return 0.0 if stuck else _LOCK_SECONDS


def _sync_if_due(store: StoreId, descriptor: int) -> None:
    now = time.monotonic()
    if now - _synced_at.get(store, -_SYNC_SECONDS) >= _SYNC_SECONDS:
        os.fdatasync(descriptor)
        _synced_at[store] = now


def _line(anchor: Anchor) -> bytes:
    return f"{anchor.position} {anchor.digest}".ljust(_WIDTH - 1).encode() + b"\n"


def _parse(content: bytes) -> Anchor:
    position, digest = content.decode("ascii").split()
    return Anchor(int(position), digest)


def _position(content: bytes) -> int:
    try:
        return _parse(content).position
    except ValueError:
        return 0
