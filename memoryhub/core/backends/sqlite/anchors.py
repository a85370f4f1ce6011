"""The anchor of a store as a file beside it, ``head``: one line of fixed width, overwritten in place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    return _parse_anchor(content) if content.strip(b"\0") else None


def acknowledged(store: StoreId) -> list[Anchor]:
    anchor = read(store)
    return [anchor] if anchor else []


def advance(store: StoreId, anchor: Anchor, *, holds: Callable[[], bool]) -> None:
    was_stuck = time.monotonic() - _stuck_at.get(store, -_SKIP_WAIT_SECONDS) < _SKIP_WAIT_SECONDS
    try:
        with _locked_file(store, 0.0 if was_stuck else _LOCK_SECONDS) as descriptor:
            anchored = 0
            with suppress(ValueError):  # there is none, or a power cut has left part of one
                anchored = _parse_anchor(os.pread(descriptor, _WIDTH, 0)).position
            if anchored < anchor.position and holds():
                _write_anchor(descriptor, anchor)
                if time.monotonic() - _synced_at.get(store, -_SYNC_SECONDS) >= _SYNC_SECONDS:
                    os.fdatasync(descriptor)
                    _synced_at[store] = time.monotonic()
        _stuck_at.pop(store, None)
    except Locked:
        _stuck_at[store] = time.monotonic()
        raise


def replace(store: StoreId, anchor: Anchor) -> None:
    with _locked_file(store, _LOCK_SECONDS) as descriptor:
        _write_anchor(descriptor, anchor)
        os.fsync(descriptor)


def remove(store: StoreId) -> None:
    anchor_path(store).unlink(missing_ok=True)


@contextmanager
def _locked_file(store: StoreId, seconds: float) -> Iterator[int]:
    descriptor = os.open(anchor_path(store), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock(descriptor, seconds=seconds):
            raise Locked(f"the anchor of {store.name!r} is locked by another process")
        yield descriptor
    finally:
        os.close(descriptor)


def _write_anchor(descriptor: int, anchor: Anchor) -> None:
    os.pwrite(descriptor, f"{anchor.position} {anchor.digest}".ljust(_WIDTH - 1).encode() + b"\n", 0)


def _parse_anchor(content: bytes) -> Anchor:
    position, digest = content.decode("ascii").split()
    return Anchor(int(position), digest)
