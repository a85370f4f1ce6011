"""The anchor: a copy of the chain's head in a file beside the store."""

# SQLite cannot detect a truncated log or a deleted WAL; a head kept outside the store can. The file ``head`` is one
# line of fixed width, overwritten in place so that it cannot be torn. It is written after every commit and synced
# once a second (decision 4), so it may lag behind the log, but it is never ahead: if it is ahead, acknowledged events
# are lost, and no event may be written at their positions (decision 38).

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
# After a timeout, later writers do not wait for the lock until this many seconds have passed.
_SKIP_WAIT_SECONDS = 10.0

_synced_at: dict[StoreId, float] = {}
_stuck_at: dict[StoreId, float] = {}


@dataclass(frozen=True, slots=True)
class Anchor:
    position: int
    digest: str


def anchor_path(store: StoreId) -> Path:
    return anchor_of(store.path)


def read_anchor(store: StoreId) -> Anchor | None:
    """Return the anchored head; None if the file is missing or empty, as a power cut can leave it.

    Raises:
        ValueError: the file does not contain an anchor.
    """
    try:
        content = anchor_path(store).read_bytes()
    except FileNotFoundError:
        return None
    return _parse(content) if content.strip(b"\0") else None


def anchor_problem(end: tuple[int, str] | None = None) -> str:
    """Return how the current store's log differs from its anchor, as a sentence; "" if it does not.

    Reads the anchor and one or two events: about 30 µs. ``end`` is the log's head, if it is known.
    """
    try:
        anchor = read_anchor(current_store())
    except ValueError:
        return "the anchor file beside the store cannot be read"
    if anchor is None:
        return ""
    position, digest = end or head()
    if anchor.position > position:
        return f"the log ends at #{position}, but #{anchor.position} was acknowledged; its tail was cut"
    if (digest if anchor.position == position else digest_at(anchor.position)) != anchor.digest:
        return f"#{anchor.position} is not the event that was acknowledged"
    return ""


def anchor_warning() -> str:
    """Return a warning to show beside every answer; "" if the log matches its anchor."""
    problem = anchor_problem()
    return (
        f"{problem}; the answer is from the remaining events. Writes are refused: run `memory-hub doctor`"
        if problem
        else ""
    )


def require_anchored(end: tuple[int, str]) -> None:
    problem = anchor_problem(end)
    if problem:
        raise Damaged(f"nothing was written: {problem}; run `memory-hub doctor`", store=current_store().name)


def advance_anchor(store: StoreId, position: int, digest: str) -> None:
    """Move the anchor forward to a committed event. On failure it lags until the next commit."""
    try:
        with _locked(store, _lock_timeout(store)) as descriptor:
            # A restore may have removed the event since the commit; then it must not be anchored.
            if _position(os.pread(descriptor, _WIDTH, 0)) < position and digest_at(position) == digest:
                os.pwrite(descriptor, _line(position, digest), 0)
                _sync_if_due(store, descriptor)
        _stuck_at.pop(store, None)
    except Locked:
        _stuck_at[store] = time.monotonic()
        logger.warning("the anchor of %s is locked by another process and lags behind #%s", store.name, position)
    except (OSError, DatabaseError) as error:
        logger.warning("the anchor of %s could not be moved to #%s: %s", store.name, position, error)


def replace_anchor(store: StoreId, position: int, digest: str) -> None:
    """Set the anchor to the head of a restored store, which may be before or after the present one.

    Raises:
        Locked: another process held the anchor for a second.
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


def _lock_timeout(store: StoreId) -> float:
    stuck = time.monotonic() - _stuck_at.get(store, -_SKIP_WAIT_SECONDS) < _SKIP_WAIT_SECONDS
    return 0.0 if stuck else _LOCK_SECONDS


def _sync_if_due(store: StoreId, descriptor: int) -> None:
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
