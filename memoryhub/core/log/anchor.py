"""The anchor: the head of the chain, kept outside the store, which shows a cut tail or a deleted WAL.

One line of fixed width in the file ``head`` beside the store, overwritten in place so that a torn write cannot happen.
It is moved after every commit and synced once a second, so it may lag behind the log but is never ahead of it: where it
is ahead, events that were acknowledged are gone, and nothing may be written over their positions (decision 38).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError

from memoryhub.core.errors import Damaged, Locked
from memoryhub.core.file_locks import lock
from memoryhub.core.log.read import digest_at, head
from memoryhub.core.stores.files import anchor_of
from memoryhub.core.stores.store import StoreId, current_store

logger = logging.getLogger(__name__)

_WIDTH = 128
_SYNC_SECONDS = 1.0
_LOCK_SECONDS = 1.0
# Once the lock could not be had in time, other writers do not wait for it again until this many seconds are over.
_PATIENCE_SECONDS = 10.0

_synced_at: dict[StoreId, float] = {}
_stuck_at: dict[StoreId, float] = {}


@dataclass(frozen=True, slots=True)
class Anchor:
    """A position and the chain's digest at it."""

    position: int
    digest: str


def anchor_path(store: StoreId) -> Path:
    """Return the file that holds the store's anchor."""
    return anchor_of(store.path)


def read_anchor(store: StoreId) -> Anchor | None:
    """Return the anchored head; None where none was ever written, or a power cut left the new file empty.

    Raises:
        ValueError: the file does not hold an anchor.
    """
    try:
        content = anchor_path(store).read_bytes()
    except FileNotFoundError:
        return None
    return _parse(content) if content.strip(b"\0") else None


def anchor_problem() -> str:
    """Return how the current store's log differs from what was anchored, as a sentence; "" where it does not.

    Reads the anchor and one or two events: some 30 µs.
    """
    try:
        anchor = read_anchor(current_store())
    except ValueError:
        return "the anchor file beside the store cannot be read"
    if anchor is None:
        return ""
    position, digest = head()
    if anchor.position > position:
        return f"the log ends at #{position}, but #{anchor.position} was acknowledged; its tail was cut"
    if (digest if anchor.position == position else digest_at(anchor.position)) != anchor.digest:
        return f"#{anchor.position} is not the event that was acknowledged"
    return ""


def anchor_warning() -> str:
    """Return what readers of the current store must know besides the answer; "" where its log is as it was anchored."""
    problem = anchor_problem()
    return (
        f"{problem}; this is what is left. Writes are refused: `memory-hub doctor` says how to go on" if problem else ""
    )


def require_anchored() -> None:
    """Refuse to write to a log that is not the one that was anchored.

    Raises:
        Damaged: it is not.
    """
    problem = anchor_problem()
    if problem:
        raise Damaged(
            f"nothing was written: {problem}; `memory-hub doctor` says how to go on", store=current_store().name
        )


def advance_anchor(store: StoreId, position: int, digest: str) -> None:
    """Move the anchor forward to an event that was just committed; an anchor that is further on stays.

    The event is acknowledged in any case: an anchor that cannot be moved now lags until the next commit.
    """
    try:
        with _locked(store, _patience(store)) as descriptor:
            # Whoever was stopped between commit and anchor must not anchor what a restore has taken back since.
            if _position(os.pread(descriptor, _WIDTH, 0)) < position and digest_at(position) == digest:
                os.pwrite(descriptor, _line(position, digest), 0)
                _sync_now_and_then(store, descriptor)
        _stuck_at.pop(store, None)
    except Locked:
        _stuck_at[store] = time.monotonic()
        logger.warning("the anchor of %s is locked by another process and stays behind #%s", store.name, position)
    except (OSError, DatabaseError) as error:
        logger.warning("the anchor of %s could not be moved to #%s: %s", store.name, position, error)


def replace_anchor(store: StoreId, position: int, digest: str) -> None:
    """Set the anchor to the head of a store that was restored, be that before it or behind it.

    Raises:
        Locked: another process has held the anchor for a second.
    """
    with _locked(store, _LOCK_SECONDS) as descriptor:
        os.pwrite(descriptor, _line(position, digest), 0)
        os.fsync(descriptor)


@contextmanager
def _locked(store: StoreId, seconds: float) -> Iterator[int]:
    descriptor = os.open(anchor_path(store), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock(descriptor, seconds=seconds):
            raise Locked(f"the anchor of {store.name!r} is locked by another process")
        yield descriptor
    finally:
        os.close(descriptor)


def _patience(store: StoreId) -> float:
    stuck = time.monotonic() - _stuck_at.get(store, -_PATIENCE_SECONDS) < _PATIENCE_SECONDS
    return 0.0 if stuck else _LOCK_SECONDS


def _sync_now_and_then(store: StoreId, descriptor: int) -> None:
    now = time.monotonic()
    if now - _synced_at.get(store, -_SYNC_SECONDS) >= _SYNC_SECONDS:
        os.fdatasync(descriptor)
        _synced_at[store] = now


def _line(position: int, digest: str) -> bytes:
    return f"{position} {digest}".ljust(_WIDTH - 1).encode() + b"\n"


def _parse(content: bytes) -> Anchor:
    position, digest = content.decode("ascii").split()
    return Anchor(int(position), digest)


def _position(content: bytes) -> int:
    try:
        return _parse(content).position
    except ValueError:
        return 0
