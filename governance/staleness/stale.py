"""The queue of stale items; each reason is one query."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from governance.staleness.file_changes import Touches
from governance.staleness.governed_files import LIVE_DECISION, LIVE_MEMORY, Governing, fetch_among, governing
from governance.staleness.schemas import Why
from memoryhub.config.current_settings import project_settings
from memoryhub.core import clock
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import elements, greatest, json_int, json_text
from memoryhub.core.text import counted

_EXPIRED = (
    "SELECT m.id, m.valid_until || '' FROM memories_memory m "
    f"WHERE m.valid_until IS NOT NULL AND m.valid_until <= %s AND {LIVE_MEMORY} {{among}}"
)
# Decisions whose review is requested, since their last revert
_MARKED = f"""
SELECT d.id, d.review, coalesce(
  (SELECT max(c.committed_at) FROM decisions_commitlink l JOIN sessions_app_commit c ON c.id = l.commit_id
   WHERE l.decision_id = d.id AND l.link_type = 'reverts'), d.decided_at) || ''
FROM decisions_decision d WHERE d.review <> '' AND {LIVE_DECISION} {{among}}"""
_POLICIES = (
    f"WITH policies(kind, type, days, cutoff) AS (SELECT {json_text('value', 0)}, {json_text('value', 1)}, "
    f"{json_int('value', 2)}, {json_text('value', 3)} FROM {elements()} AS policy) "
)
# Memories past ``review_after``; a policy for the type takes precedence over one for the kind
_OLD_MEMORIES = f"""{_POLICIES}
SELECT m.id, {greatest("m.updated_at", "coalesce(a.affirmed_at, m.updated_at)")}, p.days
FROM policies p JOIN memories_memory m ON m.kind = p.kind AND m.updated_at <= p.cutoff
LEFT JOIN governance_affirmation a ON a.entity_id = m.id
WHERE (p.type = m.type OR (p.type = '' AND NOT EXISTS
    (SELECT 1 FROM policies own WHERE own.kind = m.kind AND own.type = m.type)))
  AND coalesce(a.affirmed_at, '') <= p.cutoff AND {LIVE_MEMORY} {{among}}"""
_OLD_DECISIONS = f"""{_POLICIES}
SELECT d.id, {greatest("d.decided_at", "coalesce(a.affirmed_at, d.decided_at)")}, p.days
FROM policies p JOIN decisions_decision d ON p.kind = 'decision' AND d.decided_at <= p.cutoff
LEFT JOIN governance_affirmation a ON a.entity_id = d.id
WHERE (p.type = d.impact OR (p.type = '' AND NOT EXISTS
    (SELECT 1 FROM policies own WHERE own.kind = 'decision' AND own.type = d.impact)))
  AND coalesce(a.affirmed_at, '') <= p.cutoff AND {LIVE_DECISION} {{among}}"""


class Reason(NamedTuple):
    why: Why
    # In the store's format, which compares and sorts; parsed only for display
    since: str
    says: str


class Due(NamedTuple):
    id: int
    reasons: list[Reason]

    @property
    def since(self) -> str:
        return min(reason.since for reason in self.reasons)


# Not a table: time alone makes items stale, and one commit can touch what thousands of items govern (decision 25)
@dataclass(frozen=True, slots=True)
class Queue:
    # Oldest first
    due: list[Due]
    # All items that govern files, stale or not
    governing: dict[int, Governing]
    touches: Touches


def queue(*, now: datetime | None = None, among: Collection[int] | None = None) -> Queue:
    """Return the stale items of the current store.

    Args:
        now: the time at which ages and ends are compared; default: the present.
        among: consider these ids only.
    """
    moment, things = now or clock.now(), governing(among)
    touches = Touches(things.values())
    found: dict[int, list[Reason]] = {}
    for entity_id, reason in (*_touched(things, touches), *_reasons(moment, among)):
        found.setdefault(entity_id, []).append(reason)
    due = sorted(map(Due._make, found.items()), key=lambda due: (due.since, due.id))
    return Queue(due, things, touches)


def _touched(things: dict[int, Governing], touches: Touches) -> Iterator[tuple[int, Reason]]:
    for thing in things.values():
        first = touches.first(thing)
        if first is not None:
            yield thing.id, Reason(Why.TOUCHED, first, "a commit changed a file that it governs")


def _reasons(now: datetime, among: Collection[int] | None) -> Iterator[tuple[int, Reason]]:
    for entity_id, review, since in fetch_among(_MARKED, "d.id", among):
        yield entity_id, Reason(Why.REVERTED, since, review)
    for entity_id, ended in fetch_among(_EXPIRED, "m.id", among, [rows.time_value(now)]):
        yield entity_id, Reason(Why.EXPIRED, ended, f"it was valid until {clock.day(ended)}")
    yield from _aged(now, among)


def _aged(now: datetime, among: Collection[int] | None) -> Iterator[tuple[int, Reason]]:
    policies = [(*_split(name), days) for name, days in project_settings().review_after.items()]
    if not policies:
        return
    given = [
        json.dumps([(*policy, rows.time_value(now - timedelta(days=policy[2]))) for policy in policies], default=str)
    ]
    for sql, column in ((_OLD_MEMORIES, "m.id"), (_OLD_DECISIONS, "d.id")):
        for entity_id, looked_at, days in fetch_among(sql, column, among, given):
            since = moment_of(looked_at) + timedelta(days=days)
            yield (
                entity_id,
                Reason(Why.AGE, str(rows.time_value(since)), f"not checked for {counted(days, 'day')}"),
            )


def _split(name: str) -> tuple[str, str]:
    kind, _, of = name.partition("/")
    return kind, of


def moment_of(stored: str) -> datetime:
    return clock.from_text(rows.time_text(stored))
