"""The head of the chain, kept outside the store: what shows a cut tail or a deleted WAL.

One line of fixed width beside the store, overwritten in place and synced, so that a torn write cannot happen.
It is written after the commit; so it may lag behind the store by what a crash cut off, but never run ahead.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from memoryhub.core.stores import StoreId

_WIDTH = 128


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
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _parse(content: bytes) -> Anchor:
    position, digest = content.decode("ascii").split()
    return Anchor(int(position), digest)


def _position(content: bytes) -> int:
    try:
        return _parse(content).position
    except ValueError:
        return 0
