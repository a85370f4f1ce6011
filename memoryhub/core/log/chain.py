"""Proof that the log is what was written: every digest, no gap, and the head that was anchored outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError

from memoryhub.core.log.anchor import Anchor, read_anchor
from memoryhub.core.log.checkpoint import Checkpoint
from memoryhub.core.log.digests import GENESIS, HEADER, chain_digest, payload_digest
from memoryhub.core.log.erase import erased_positions
from memoryhub.core.log.redact import redacted_digests
from memoryhub.core.stores import rows
from memoryhub.core.stores.integrity import is_damage
from memoryhub.core.stores.store import StoreId, current_store

_BATCH = 5000
_WIDTH = len(HEADER)
_SELECT = (
    f"SELECT {', '.join(HEADER)}, payload_json, salt, payload_digest, chain_digest "
    "FROM {database}.raw_events WHERE position > %s ORDER BY position LIMIT %s"
)


@dataclass(frozen=True, slots=True)
class Verification:
    """What walking the chain found."""

    ok: bool
    events: int
    head_digest: str
    broken_position: int | None = None
    """The first event that is not what was written."""
    reason: str = ""

    def describe(self) -> str:
        """Return the finding as one sentence."""
        if self.ok:
            count = f"{self.events} event{'' if self.events == 1 else 's'}"
            return f"the chain holds: {count}, head {self.head_digest[:12]}"
        return f"the chain is broken at #{self.broken_position}: {self.reason}"


class _Broken(Exception):
    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Known:
    """A position and its digest, kept where the store's own file cannot reach."""

    position: int
    digest: str
    where: str


def verify(
    checkpoint: Checkpoint | None = None,
    *,
    of: StoreId | None = None,
    database: str = "main",
    anchored: bool = True,
) -> Verification:
    """Walk a store's log from its first event, and compare it with the anchor.

    Only the table of events is read, none of its indexes, so that damage elsewhere in the file changes nothing.

    Args:
        checkpoint: a head that was kept elsewhere, to compare with too.
        of: the store whose anchor counts; default: the current one.
        database: the name of that store in the current connection.
        anchored: whether to compare with the anchor.

    Raises:
        Invalid: the checkpoint is of another store.
    """
    walked = _Walk(_redacted(database))
    try:
        known = _known(checkpoint, of or current_store(), anchored=anchored)
        for row in _all_rows(database):
            walked.step(row)
            _compare(walked, known)
        _check_tail(walked.count, known)
        _check_erasures(walked.erased, database)
    except _Broken as broken:
        return Verification(False, walked.count, walked.digest, broken.position, broken.reason)
    return Verification(True, walked.count, walked.digest)


def check_links(*, first: int, last: int) -> dict[int, str]:
    """Return for each event from ``first`` to ``last`` what is wrong with it; "" where it is what was written.

    Each is held against the digest of the one before it as that stands, so that one wrong link leaves the next alone.
    """
    position, previous = max(0, first - 2), GENESIS
    found, redacted = {}, redacted_digests()
    for row in _batch(position, last - position, "main"):
        if first <= row[0] <= last:
            found[row[0]] = _flaw(row, position + 1, previous, redacted)
        position, previous = row[0], row[-1]
    return found


def _flaw(row: tuple[Any, ...], expected: int, previous: str, redacted: Mapping[int, str]) -> str:
    try:
        _checked(row, expected, previous, redacted)
    except _Broken as broken:
        return broken.reason
    return ""


class _Walk:
    """How far the chain is known to hold."""

    def __init__(self, redacted: Mapping[int, str]) -> None:
        self.count, self.digest = 0, GENESIS
        self.erased: list[int] = []
        self._redacted = redacted

    def step(self, row: tuple[Any, ...]) -> None:
        self.digest = _checked(row, self.count + 1, self.digest, self._redacted)
        self.count += 1
        if row[_WIDTH] is None:
            self.erased.append(self.count)


def _redacted(database: str) -> dict[int, str]:
    """Return what stands in the place of redacted payloads; of a log that cannot be read whole, what an index finds."""
    for use_index in (False, True):
        try:
            return redacted_digests(database, use_index=use_index)
        except DatabaseError as error:
            if not is_damage(error):
                raise
    return {}


def _known(checkpoint: Checkpoint | None, store: StoreId, *, anchored: bool) -> list[_Known]:
    """Return what is known of the chain from outside the store."""
    anchor = _anchor(store) if anchored else None
    known = [_Known(anchor.position, anchor.digest, "anchored outside the store")] if anchor else []
    if checkpoint:
        checkpoint.require_store(store)
        known.append(_Known(checkpoint.position, checkpoint.digest, "in the checkpoint"))
    return known


def _compare(walked: _Walk, known: list[_Known]) -> None:
    for each in known:
        if each.position == walked.count and each.digest != walked.digest:
            raise _Broken(walked.count, f"its digest is not the one that is {each.where}")


def _check_tail(count: int, known: list[_Known]) -> None:
    last = max(known, key=lambda each: each.position, default=None)
    if last and last.position > count:
        reason = f"the log ends at #{count}, but #{last.position} is {last.where}; its tail was cut"
        raise _Broken(count + 1, reason)


def _check_erasures(erased: list[int], database: str) -> None:
    """The triggers of the log let anybody erase a payload; the product appends an event that says so."""
    unexplained = set(erased) - erased_positions(database) if erased else ()
    if unexplained:
        raise _Broken(min(unexplained), "its payload is gone, and no event says that it was erased")


def _anchor(store: StoreId) -> Anchor | None:
    try:
        return read_anchor(store)
    except ValueError as error:
        raise _Broken(0, "the anchor file beside the store cannot be read") from error


def _all_rows(database: str) -> Iterator[tuple[Any, ...]]:
    position = 0
    while batch := _batch(position, _BATCH, database):
        yield from batch
        position = batch[-1][0]


def _batch(after: int, size: int, database: str) -> list[tuple[Any, ...]]:
    """Return the next rows; where one cannot be read, those before it first, so that its position is known."""
    try:
        return rows.fetch(_SELECT.format(database=database), [after, size])
    except DatabaseError as error:
        if not is_damage(error):
            raise
        if size > 1:
            return _batch(after, size // 2, database)
        raise _Broken(after + 1, "it cannot be read; the file is damaged") from error


def _checked(row: tuple[Any, ...], expected: int, previous: str, redacted: Mapping[int, str]) -> str:
    position = row[0]
    payload_json, salt, stored_payload, stored_chain = row[_WIDTH:]
    if position != expected:
        raise _Broken(expected, f"it is missing; the next is #{position}")
    if (payload_json is None) != (salt is None):
        raise _Broken(position, "its payload and its salt do not go together")
    if payload_json is not None and not _is_payload(salt, payload_json, redacted.get(position, stored_payload)):
        raise _Broken(position, "its payload is not the one that was written")
    chained = _chained(previous, row[:_WIDTH], stored_payload)
    if chained != stored_chain:
        raise _Broken(position, "its header, or an event before it, is not the one that was written")
    return chained


def _is_payload(salt: Any, payload_json: Any, digest: str) -> bool:
    """Whether the digest is the payload's; damage may have left what is no text, or hexadecimal in other letters."""
    try:
        return payload_digest(salt, payload_json) == digest and bytes.fromhex(salt).hex() == salt
    except (TypeError, ValueError, AttributeError):
        return False


def _chained(previous: str, header: tuple[Any, ...], payload: Any) -> str:
    try:
        return chain_digest(previous, header, payload)
    except (TypeError, ValueError):
        return ""
