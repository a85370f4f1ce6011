"""The queue of memories and decisions that need rechecking; each reason is one query."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from decisions.models import Decision
from governance.models import Affirmation
from governance.present import stale_line
from governance.staleness.governed_files import (
    LIVE_DECISION,
    LIVE_MEMORY,
    Governing,
    Touches,
    add_diffs,
    fetch_among,
    governing,
    on_governed,
    reverting,
    shown_commits,
)
from governance.staleness.schemas import StaleKind, StaleList, StaleView, Why
from memories.models import Memory
from memories.pack.sections import GatherRequest, PackItem, SectionDefinition, define_section
from memoryhub.config.current_settings import project_settings
from memoryhub.core import clock, log
from memoryhub.core.errors import NotFound
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import elements, greatest, json_int, json_text
from memoryhub.core.text import counted

MAX_TEXT = 2_000
MAX_PATHS = 50
# Shown per item
MAX_COMMITS = 5
# Shown per commit
MAX_FILES = 20


def list_stale(*, command: StaleList) -> Listing:
    """Return a page of stale items, oldest first."""
    stale = queue(among=None if command.id is None else [command.id])
    matching = _matching(stale.due, command)
    after = decode_cursor(command.cursor, (str, int))
    remaining = [due for due in matching if not after or [due.since, due.id] > after]
    entries = views(stale, remaining[: command.limit], diff=command.diff, compact=command.compact)
    places = {due.id: encode_cursor(due.since, due.id) for due in remaining[: command.limit]}
    return page(
        entries,
        total=len(matching),
        more=len(remaining) > command.limit,
        cursor_of=lambda item: places[item["id"]],
        line=stale_line,
        max_tokens=command.max_tokens,
    )


@dataclass(frozen=True, slots=True)
class Waiting:
    """An item of the queue and its neighbours."""

    # As in ``list_stale``, with diffs
    item: dict[str, Any]
    number: int
    total: int
    before: int | None
    after: int | None


def waiting(*, entity_id: int | None = None) -> Waiting | None:
    """Return an item of the queue with diffs, by default the oldest; None if the queue is empty.

    Raises:
        NotFound: the item is not stale.
    """
    stale = queue()
    ids = [due.id for due in stale.due]
    if entity_id is not None and entity_id not in ids:
        raise NotFound(f"#{entity_id} is not stale; the queue lists what needs rechecking", id=entity_id)
    if not ids:
        return None
    at = 0 if entity_id is None else ids.index(entity_id)
    entries = views(stale, [stale.due[at]], diff=True)
    if not entries:
        raise NotFound(f"#{ids[at]} was erased while it was read; open the queue again", id=ids[at])
    return Waiting(
        item=entries[0],
        number=at + 1,
        total=len(ids),
        before=ids[at - 1] if at else None,
        after=ids[at + 1] if at + 1 < len(ids) else None,
    )


def count_stale() -> int:
    """Return the size of the queue; cached until the log grows, for an hour at most."""
    key = (log.head(), clock.now().replace(minute=0, second=0, microsecond=0))
    if key not in _counts:
        _counts[key] = len(queue().due)
        while len(_counts) > _MOST_COUNTS:
            _counts.pop(next(iter(_counts)), None)
    return _counts[key]


_MOST_COUNTS = 32
# Keyed by the head of the log, whose digest identifies a store and its state, and the hour
_counts: dict[tuple[tuple[int, str], datetime], int] = {}


def _matching(due: Sequence[Due], command: StaleList) -> list[Due]:
    matching = [thing for thing in due if command.why in (None, *(reason.why for reason in thing.reasons))]
    if command.kind is None:
        return matching
    kinds = _kinds([thing.id for thing in matching])
    return [thing for thing in matching if kinds.get(thing.id, StaleKind.DECISION) == command.kind]


def _kinds(ids: Sequence[int]) -> dict[int, str]:
    return dict(Memory.objects.filter(id__in=list(ids)).values_list("id", "kind"))


def views(stale: Queue, due: Sequence[Due], *, diff: bool = False, compact: bool = False) -> list[dict[str, Any]]:
    """Return stale items as JSON data, with five queries for any number of them."""
    if not due:
        return []
    ids = [thing.id for thing in due]
    heads = {**_memories(ids), **_decisions(ids)}
    # Without what was erased after the queue was read
    due = [thing for thing in due if thing.id in heads]
    ids = [thing.id for thing in due]
    if compact:
        return [{"id": entity_id, "title": heads[entity_id]["title"]} for entity_id in ids]
    affirmed = {affirmation.entity_id: affirmation for affirmation in Affirmation.objects.filter(entity_id__in=ids)}
    touching = _touching(stale, ids)
    commits = _commits(stale, {entity_id: commit_ids[:MAX_COMMITS] for entity_id, commit_ids in touching.items()})
    if diff:
        add_diffs([commit for entity_id in ids for commit in commits[entity_id]])
    return [
        StaleView(
            id=thing.id,
            **_looked_at(heads[thing.id], affirmed.get(thing.id)),
            since=moment_of(thing.since),
            reasons=[_reason(reason, len(touching[thing.id])) for reason in thing.reasons],
            governs=sorted(_paths(stale, thing.id))[:MAX_PATHS],
            commits=commits[thing.id],
            commit_count=len(touching[thing.id]),
        ).model_dump(mode="json")
        for thing in due
    ]


# Latest first; reverts before commits that touched a file
def _touching(stale: Queue, ids: Sequence[int]) -> dict[int, list[int]]:
    back = reverting(ids)
    return {
        entity_id: [
            *back.get(entity_id, ()),
            *(stale.touches.of(stale.governing[entity_id]) if entity_id in stale.governing else ()),
        ]
        for entity_id in ids
    }


def _commits(stale: Queue, touching: dict[int, list[int]]) -> dict[int, list[dict[str, Any]]]:
    commits = shown_commits(commit_id for commit_ids in touching.values() for commit_id in commit_ids)
    return {
        entity_id: [on_governed(commits[commit_id], _paths(stale, entity_id), MAX_FILES) for commit_id in commit_ids]
        for entity_id, commit_ids in touching.items()
    }


def _paths(stale: Queue, entity_id: int) -> set[str]:
    return stale.governing[entity_id].paths if entity_id in stale.governing else set()


def _looked_at(head: dict[str, Any], last: Affirmation | None) -> dict[str, Any]:
    if last is None:
        return {**head, "affirmed_by": ""}
    return {**head, "looked_at": max(head["looked_at"], last.affirmed_at), "affirmed_by": last.actor}


def _reason(reason: Reason, commit_count: int) -> dict[str, Any]:
    is_many = reason.why is Why.TOUCHED and commit_count > 1
    says = f"{commit_count} commits changed files that it governs" if is_many else reason.says
    return {"why": reason.why, "since": clock.to_text(moment_of(reason.since)), "says": says}


def _memories(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    memories = Memory.objects.filter(id__in=list(ids)).values("id", "kind", "type", "title", "content", "updated_at")
    return {
        memory["id"]: {
            **{name: memory[name] for name in ("kind", "type", "title")},
            "text": memory["content"][:MAX_TEXT],
            "looked_at": memory["updated_at"],
        }
        for memory in memories
    }


def _decisions(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    return {
        decision.id: {
            "kind": StaleKind.DECISION,
            "type": decision.impact,
            "title": decision.title,
            "text": decision.chosen[:MAX_TEXT],
            "looked_at": decision.decided_at,
        }
        for decision in Decision.objects.filter(id__in=list(ids))
    }


_MOST = 12
_LONGEST = 260


# Expired memories are in no pack, so their reason alone is not shown either
def _stale(request: GatherRequest) -> list[PackItem]:
    stale = queue(now=request.now)
    listed = [due for due in stale.due if any(reason.why is not Why.EXPIRED for reason in due.reasons)]
    return [PackItem(f"#{item['id']}", f"- {stale_line(item)}") for item in views(stale, listed[:_MOST])]


define_section(
    SectionDefinition(
        "stale",
        "Needs recheck: memory_affirm what is still valid, else supersede or update it",
        45,
        0.1,
        _LONGEST,
        _stale,
        "memory_stale",
    )
)


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
    """Why an item is stale, and since when."""

    why: Why
    # In the store's format, which compares and sorts; parsed only for display
    since: str
    says: str


class Due(NamedTuple):
    """A stale item with its reasons."""

    id: int
    reasons: list[Reason]

    @property
    def since(self) -> str:
        return min(reason.since for reason in self.reasons)


# Not a table: time alone makes items stale, and one commit can touch what thousands of items govern (decision 25)
@dataclass(frozen=True, slots=True)
class Queue:
    """The stale items, and what they govern."""

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
    reasons: dict[int, list[Reason]] = {}
    for entity_id, reason in (*_touched(things, touches), *_reasons(moment, among)):
        reasons.setdefault(entity_id, []).append(reason)
    due = sorted(map(Due._make, reasons.items()), key=lambda due: (due.since, due.id))
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
    parameters = [
        json.dumps([(*policy, rows.time_value(now - timedelta(days=policy[2]))) for policy in policies], default=str)
    ]
    for sql, column in ((_OLD_MEMORIES, "m.id"), (_OLD_DECISIONS, "d.id")):
        for entity_id, looked_at, days in fetch_among(sql, column, among, parameters):
            since = moment_of(looked_at) + timedelta(days=days)
            yield (
                entity_id,
                Reason(Why.AGE, str(rows.time_value(since)), f"not checked for {counted(days, 'day')}"),
            )


def _split(name: str) -> tuple[str, str]:
    kind, _, of = name.partition("/")
    return kind, of


def moment_of(stored: str) -> datetime:
    """Parse a time of the queue."""
    return clock.from_text(rows.time_text(stored))
