"""Verify that the log is unchanged, from its digests to its anchor, and accept the loss of its tail (decision 38)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from django.db import DatabaseError
from pydantic import Field

from memoryhub.core.backends.base import HERE
from memoryhub.core.backends.selected import faults, stores
from memoryhub.core.errors import Damaged, Invalid
from memoryhub.core.events.event_types import define_governance_event
from memoryhub.core.events.projection import Event
from memoryhub.core.log.anchor import Checkpoint, anchor_problem, known_anchors, read_anchor, replace_anchor
from memoryhub.core.log.append import append, prepare, transaction
from memoryhub.core.log.digests import GENESIS, HEADER, chain_digest, payload_digest
from memoryhub.core.log.erase import erased_positions, redacted_digests
from memoryhub.core.log.read import head, read_models_ahead
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import Payload, Sha256
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId, current_store, require_stayed, use_store

_BATCH = 5000
_WIDTH = len(HEADER)
_SELECT = (
    f"SELECT {', '.join(HEADER)}, payload_json, salt, payload_digest, chain_digest "
    "FROM {database}.raw_events WHERE position > %s ORDER BY position LIMIT %s"
)


@dataclass(frozen=True, slots=True)
class Verification:
    ok: bool
    events: int
    head_digest: str
    # The first event that differs from what was written.
    broken_position: int | None = None
    reason: str = ""
    # How the read models show that the tail was cut, though the chain and the anchor hold; "" if they don't
    ahead: str = ""

    def describe(self) -> str:
        if self.ahead:
            return f"{self.ahead}: the tail was cut together with the anchor, or rows were added without events"
        if self.ok:
            count = f"{self.events} event{'' if self.events == 1 else 's'}"
            return f"the chain holds: {count}, head {self.head_digest[:12]}"
        return f"the chain is broken at #{self.broken_position}: {self.reason}"


class _Broken(Exception):
    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def verify(
    checkpoint: Checkpoint | None = None, *, of: StoreId | None = None, database: str = HERE, anchored: bool = True
) -> Verification:
    """Check every event of a store's log, and compare the result with the anchor.

    Args:
        checkpoint: another trusted head to compare with.
        of: the store whose anchor is used; default: the current one.
        database: the schema name of that store in the current connection.
        anchored: whether to compare with the anchor, and with the read models of a store that is not damaged.
    """
    redacted = _redacted(database)
    count, digest = 0, GENESIS
    erased: set[int] = set()
    try:
        heads = _trusted_heads(checkpoint, of or current_store(), anchored=anchored)
        for row in _all_rows(database):
            digest = _check_event(row, count + 1, digest, redacted)
            count += 1
            if row[_WIDTH] is None:
                erased.add(count)
            for position, trusted, where in heads:
                if position == count and trusted != digest:
                    raise _Broken(count, f"its digest differs from the one {where}")
        position, _, where = max(heads, key=itemgetter(0), default=(0, "", ""))
        if position > count:
            raise _Broken(count + 1, f"the log ends at #{count}, but #{position} is {where}; its tail was cut")
        _check_erasures(erased, database)
    except _Broken as broken:
        return Verification(False, count, digest, broken.position, broken.reason)
    ahead = ""
    if anchored and database == HERE:  # a damaged store is read as ``LIVE``; its read models may not be readable
        try:
            ahead = read_models_ahead()
        except DatabaseError as error:  # a damaged table is no evidence; doctor reports it
            if not faults.is_damage(error):
                raise
    return Verification(not ahead, count, digest, ahead=ahead)


def check_links(*, first: int, last: int) -> dict[int, str]:
    """Map each position from ``first`` to ``last`` to what is wrong with that event, "" if nothing is."""
    # Each event is compared with the digest stored before it, so one broken link is reported once.
    position, previous = max(0, first - 2), GENESIS
    redacted = redacted_digests()
    flaws = {}
    for row in _batch(position, last - position, "main"):
        if first <= row[0] <= last:
            flaws[row[0]] = ""
            try:
                _check_event(row, position + 1, previous, redacted)
            except _Broken as broken:
                flaws[row[0]] = broken.reason
        position, previous = row[0], row[-1]
    return flaws


def _redacted(database: str) -> dict[int, str]:
    # The table is read without its indexes, which may be damaged (decision 32); an index helps only if the table
    # cannot be read completely.
    for use_index in (False, True):
        try:
            return redacted_digests(database, use_index=use_index)
        except DatabaseError as error:
            if not faults.is_damage(error):
                raise
    return {}


# Positions and digests from outside the store's own file, and where they are
def _trusted_heads(checkpoint: Checkpoint | None, store: StoreId, *, anchored: bool) -> list[tuple[int, str, str]]:
    heads = []
    if anchored:
        try:
            anchors = known_anchors(store)
        except ValueError as error:
            raise _Broken(0, "the store's anchor cannot be read") from error
        heads = [(anchor.position, anchor.digest, "anchored outside the store") for anchor in anchors]
    if checkpoint:
        checkpoint.require_store(store)
        heads.append((checkpoint.position, checkpoint.digest, "in the checkpoint"))
    return heads


def _check_erasures(erased: set[int], database: str) -> None:
    # The triggers allow anyone to erase a payload; the hub also appends a payload.erased event (decision 6).
    unexplained = erased and erased - erased_positions(database)
    if unexplained:
        raise _Broken(min(unexplained), "its payload is missing, and no event records an erasure")


def _all_rows(database: str) -> Iterator[tuple[Any, ...]]:
    position = 0
    while batch := _batch(position, _BATCH, database):
        yield from batch
        position = batch[-1][0]


def _batch(after: int, size: int, database: str) -> list[tuple[Any, ...]]:
    try:
        return rows.fetch(_SELECT.format(database=database), [after, size])
    except DatabaseError as error:
        if not faults.is_damage(error):
            raise
        # Halve the batch, so that the position of the unreadable row is known.
        if size > 1:
            return _batch(after, size // 2, database)
        raise _Broken(after + 1, "it cannot be read; the file is damaged") from error


def _check_event(row: tuple[Any, ...], expected: int, previous: str, redacted: Mapping[int, str]) -> str:
    position = row[0]
    payload_json, salt, stored_payload, stored_chain = row[_WIDTH:]
    if position != expected:
        raise _Broken(expected, f"it is missing; the next is #{position}")
    if (payload_json is None) != (salt is None):
        raise _Broken(position, "its payload and its salt do not belong together")
    if payload_json is not None and not _is_payload(salt, payload_json, redacted.get(position, stored_payload)):
        raise _Broken(position, "its payload is not the one that was written")
    try:
        chained = chain_digest(previous, row[:_WIDTH], stored_payload)
    except (TypeError, ValueError):
        chained = ""
    if chained != stored_chain:
        raise _Broken(position, "its header, or an event before it, is not the one that was written")
    return chained


def _is_payload(salt: Any, payload_json: Any, digest: str) -> bool:
    try:
        # Damage can leave a value that is not text, or hexadecimal digits in upper case.
        return payload_digest(salt, payload_json) == digest and bytes.fromhex(salt).hex() == salt
    except (TypeError, ValueError, AttributeError):
        return False


class LossAccepted(Payload):
    """A person accepted that acknowledged events are lost."""

    # The last acknowledged event; 0 if the anchor could not be read.
    anchored_position: int = Field(ge=0)
    anchored_digest: Sha256 | None = None
    # The last event that is left. Later ids are assigned a second time.
    found_position: int = Field(ge=0)
    found_digest: Sha256
    problem: str
    reason: str = ""


LOSS_ACCEPTED = define_governance_event(
    "log.loss_accepted", LossAccepted, label="Log loss accepted", act=Act.WRITE, is_local=True
)


def accept_loss(*, store: StoreId, reason: str = "") -> Event[LossAccepted]:
    """Record the loss in the log, and allow writes again; a missing store is created again, unless it has moved."""
    require_stayed(store)
    problem = stores.recreate(store)
    with use_store(store):
        problem = problem or anchor_problem()
        if not problem and head()[0] and read_anchor(store) is None:
            problem = "the store's anchor is missing"
        if not problem:
            raise Invalid("nothing is lost: the log contains every acknowledged event")
        verification = verify(anchored=False)
        if not verification.ok:
            raise Damaged(f"{verification.describe()}; this loss cannot be accepted, restore a backup")
        with transaction(anchored=False):
            event = append(prepare(LOSS_ACCEPTED, _loss_payload(problem, reason)), stream="log")
        # After a crash before this line, writes are still refused, and the loss can be accepted again.
        replace_anchor(store, *head())
    return event


def _loss_payload(problem: str, reason: str) -> LossAccepted:
    try:
        anchor = read_anchor(current_store())
    except ValueError:
        anchor = None
    position, digest = head()
    return LossAccepted(
        anchored_position=anchor.position if anchor else 0,
        anchored_digest=anchor.digest if anchor else None,
        found_position=position,
        found_digest=digest,
        problem=problem,
        reason=reason,
    )
