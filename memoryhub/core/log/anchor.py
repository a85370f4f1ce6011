"""The head of the chain, kept outside the store: what shows a cut tail or a deleted WAL.

One line of fixed width beside the store, overwritten in place, so that a torn write cannot happen. It is written
after every commit, so it may lag behind the store but never run ahead. A killed process loses none of it; it is synced
once a second, so a power cut may set it back by that, which costs no data and raises no false alarm.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

from memoryhub.core.stores import StoreId

_WIDTH = 128
_SYNC_SECONDS = 1.0
_synced_at: dict[StoreId, float] = {}


@dataclass(frozen=True, slots=True)
class Anchor:
    """A position and the chain's digest at it."""

    position: int
    digest: str


def anchor_path(store: StoreId) -> Path:
    """Return the file that holds the store's anchor."""
    return store.path.with_name("head")


def read_anchor(store: StoreId) -> Anchor | None:
    """Return the anchored head, or None where none was ever written.

    Raises:
        ValueError: the file does not hold an anchor.
    """
    try:
        return _parse(anchor_path(store).read_bytes())
    except FileNotFoundError:
        return None


def advance_anchor(store: StoreId, position: int, digest: str) -> None:
    """Move the anchor forward to ``position``; an anchor that is further on stays."""
    descriptor = os.open(anchor_path(store), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _position(os.pread(descriptor, _WIDTH, 0)) < position:
            os.pwrite(descriptor, f"{position} {digest}".ljust(_WIDTH - 1).encode() + b"\n", 0)
            _sync_now_and_then(store, descriptor)
    finally:
        os.close(descriptor)


def replace_anchor(store: StoreId, position: int, digest: str) -> None:
    """Set the anchor to the head of a store that was restored, be that before it or behind it."""
    descriptor = os.open(anchor_path(store), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.pwrite(descriptor, f"{position} {digest}".ljust(_WIDTH - 1).encode() + b"\n", 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_now_and_then(store: StoreId, descriptor: int) -> None:
    now = time.monotonic()
    if now - _synced_at.get(store, -_SYNC_SECONDS) >= _SYNC_SECONDS:
        os.fdatasync(descriptor)
        _synced_at[store] = now


def _parse(content: bytes) -> Anchor:
    position, digest = content.decode("ascii").split()
    return Anchor(int(position), digest)


def _position(content: bytes) -> int:
    try:
        return _parse(content).position
    except ValueError:
        return 0
