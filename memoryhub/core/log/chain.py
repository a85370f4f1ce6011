"""Proof that the log is what was written: every digest, no gap, and the head that was anchored outside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memoryhub.core import rows
from memoryhub.core.log.anchor import Anchor, read_anchor
from memoryhub.core.log.digests import GENESIS, HEADER, chain_digest, payload_digest
from memoryhub.core.stores import current_store

_BATCH = 5000
_WIDTH = len(HEADER)
_SELECT = (
    f"SELECT {', '.join(HEADER)}, payload_json, salt, payload_digest, chain_digest "
    "FROM raw_events WHERE position > %s ORDER BY position LIMIT %s"
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
            return f"the chain holds: {self.events} events, head {self.head_digest[:12]}"
        return f"the chain is broken at #{self.broken_position}: {self.reason}"


class _Broken(Exception):
    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def verify() -> Verification:
    """Walk the current store's log from its first event, and compare it with the anchor."""
    count, digest = 0, GENESIS
    try:
        anchor = _anchor()
        for row in _all_rows():
            digest = _checked(row, count + 1, digest)
            count += 1
            if anchor and anchor.position == count and anchor.digest != digest:
                raise _Broken(count, "its digest is not the one that was anchored outside the store")
        if anchor and anchor.position > count:
            reason = f"the log ends at #{count}, but #{anchor.position} was acknowledged; its tail was cut"
            raise _Broken(count + 1, reason)
    except _Broken as broken:
        return Verification(False, count, digest, broken.position, broken.reason)
    return Verification(True, count, digest)


def _anchor() -> Anchor | None:
    try:
        return read_anchor(current_store())
    except ValueError as error:
        raise _Broken(0, "the anchor file beside the store cannot be read") from error


def _all_rows() -> Iterator[tuple[Any, ...]]:
    position = 0
    while batch := rows.fetch(_SELECT, [position, _BATCH]):
        yield from batch
        position = batch[-1][0]


def _checked(row: tuple[Any, ...], expected: int, previous: str) -> str:
    position = row[0]
    payload_json, salt, stored_payload, stored_chain = row[_WIDTH:]
    if position != expected:
        raise _Broken(expected, f"it is missing; the next is #{position}")
    if (payload_json is None) != (salt is None):
        raise _Broken(position, "its payload and its salt do not go together")
    if payload_json is not None and payload_digest(salt, payload_json) != stored_payload:
        raise _Broken(position, "its payload is not the one that was written")
    chained = chain_digest(previous, row[:_WIDTH], stored_payload)
    if chained != stored_chain:
        raise _Broken(position, "its header, or an event before it, is not the one that was written")
    return chained
