"""The queue of memories and decisions that need rechecking; each reason is one query."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
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
    commits_by_id,
    fetch_among,
    governing,
    on_governed,
)
from governance.staleness.schemas import StaleKind, StaleList, StaleView, Why
from governance.staleness.working_tree import Reason, diff_of_file, moment_of, tree_reasons
from memories.models import Memory
from memories.pack.sections import GatherRequest, PackItem, SectionDefinition, define_section
from memories.validity.checks import failed_checks, failure_text
from memoryhub.config.current_settings import project_settings
from memoryhub.core import clock, log
from memoryhub.core.errors import NotFound
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, elements, greatest, json_int, json_text
from memoryhub.core.text import counted
from sessions_app.git.worktree import WorkingTree
from sessions_app.selectors import caller_tree

MAX_TEXT = 2_000
MAX_PATHS = 50
# Shown per item
MAX_COMMITS = 5
# Shown per commit
MAX_FILES = 20


def list_stale(*, command: StaleList) -> Listing:
    """Return a page of stale items, oldest first."""
    among = None if command.id is None else [command.id]
    stale = queue(tree=caller_tree(), among=among)
    matching = _matching(stale.due, command)
    remaining = matching
    after = decode_cursor(command.cursor, (str, int))
    if after:
        remaining = [due for due in matching if [due.since, due.id] > after]
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


def stale_item(entity_id: int | None = None) -> dict[str, Any] | None:
    """Return an item of the queue as ``list_stale`` does, with diffs; by default the oldest, None if there is none.

    ``group`` is the number of the group that it is judged with, or None.

    Raises:
        NotFound: the item is not stale.
    """
    stale = queue(tree=caller_tree())
    due = [item for item in stale.due if entity_id in (None, item.id)][:1]
    groups, single = grouped(due)
    entries = [{**entry, "group": None} for entry in views(stale, single, diff=True)]
    entries += [{"id": item.id, "group": group.id} for group in groups for item in group.due]
    if entity_id is not None and not entries:
        raise NotFound(f"#{entity_id} is not stale; the queue lists what needs rechecking", id=entity_id)
    return entries[0] if entries else None


@dataclass(frozen=True, slots=True)
class StaleGroup:
    """Stale items that are judged together: those about one file, or of one branch."""

    why: Why
    # The file or the branch
    name: str
    due: list[Due]

    @property
    def id(self) -> int:
        """A number for addresses, which is that of no entry."""
        digest = hashlib.sha256(f"{self.why} {self.name}".encode()).hexdigest()
        return _GROUPS + int(digest[:10], 16)

    @property
    def ids(self) -> list[int]:
        return [item.id for item in self.due]


# No log has so many events; with the digits of a digest, numbers are still exact in JSON
_GROUPS = 2**42


def grouped(due: Sequence[Due]) -> tuple[list[StaleGroup], list[Due]]:
    """Return the files and the branches whose entries are stale, and the other items; each item once."""
    groups: dict[tuple[Why, str], StaleGroup] = {}
    single: list[Due] = []
    for item in due:
        first = min((reason for reason in item.reasons if reason.name), key=_group_order, default=None)
        if first is None:
            single.append(item)
            continue
        why = Why.DROPPED if first.why is Why.DROPPED else Why.CHANGED
        groups.setdefault((why, first.name), StaleGroup(why, first.name, [])).due.append(item)
    return list(groups.values()), single


# A dropped branch comes first: if it is deleted with its entries, their files do not matter
def _group_order(reason: Reason) -> tuple[bool, str]:
    return reason.why is not Why.DROPPED, reason.name


def stale_groups() -> list[StaleGroup]:
    """Return the files and the branches whose entries are stale."""
    groups, _ = grouped(queue(tree=caller_tree()).due)
    return groups


def stale_group(number: int) -> tuple[StaleGroup, list[dict[str, Any]]] | None:
    """Return a group by its number, with its items as ``list_stale`` has them; None if it has none any more."""
    stale = queue(tree=caller_tree())
    groups, _ = grouped(stale.due)
    match = next((group for group in groups if group.id == number), None)
    return (match, views(stale, match.due)) if match else None


def count_stale() -> int:
    """Return how many things a person has to recheck: files, branches and other items."""
    return sum(count_rechecks().values())


def count_rechecks() -> dict[Why | None, int]:
    """Return how many files have stale entries, how many branches, and under None how many other items are stale.

    Cached until the log grows or HEAD moves, for a few minutes at most.
    """
    tree = caller_tree()
    now = clock.now()
    key = (log.head(), tree, now.replace(minute=now.minute // _MINUTES * _MINUTES, second=0, microsecond=0))
    if key not in _counts:
        groups, single = grouped(queue(tree=tree).due)
        counts: dict[Why | None, int] = {None: len(single)}
        for group in groups:
            counts[group.why] = counts.get(group.why, 0) + 1
        _counts[key] = counts
        while len(_counts) > _MOST_COUNTS:
            _counts.pop(next(iter(_counts)), None)
    return _counts[key]


_MINUTES = 3
_MOST_COUNTS = 32
# Keyed by the head of the log, whose digest identifies a store and its state, and the hour
_counts: dict[tuple[Any, ...], dict[Why | None, int]] = {}


def _matching(due: Sequence[Due], command: StaleList) -> list[Due]:
    matching = list(due)
    if command.why is not None:
        matching = [item for item in matching if any(reason.why is command.why for reason in item.reasons)]
    if command.kind is not None:
        ids = [item.id for item in matching]
        kinds = dict(Memory.objects.filter(id__in=ids).values_list("id", "kind"))
        matching = [item for item in matching if kinds.get(item.id, StaleKind.DECISION) == command.kind]
    return matching


def views(stale: Queue, due: Sequence[Due], *, diff: bool = False, compact: bool = False) -> list[dict[str, Any]]:
    """Return stale items as JSON data, with five queries for any number of them."""
    if not due:
        return []
    heads = _heads([item.id for item in due])
    # Without what was erased after the queue was read
    due = [item for item in due if item.id in heads]
    ids = [item.id for item in due]
    if compact:
        return [{"id": entity_id, "title": heads[entity_id]["title"]} for entity_id in ids]
    for affirmation in Affirmation.objects.filter(entity_id__in=list(heads)):
        head = heads[affirmation.entity_id]
        head["looked_at"] = max(head["looked_at"], affirmation.affirmed_at)
        head["affirmed_by"] = affirmation.actor
    touching = _touching(stale, ids)
    commits = _commits(stale, touching)
    diffs: dict[int, dict[str, str]] = {}
    if diff:
        add_diffs(list(chain.from_iterable(commits.values())))
        diffs = _diffs_of_files(stale, due)
    entries = []
    for item in due:
        view = StaleView(
            id=item.id,
            **heads[item.id],
            since=item.moment,
            reasons=[_reason_view(reason, len(touching[item.id])) for reason in item.reasons],
            governs=sorted(stale.paths(item.id))[:MAX_PATHS],
            commits=commits[item.id],
            commit_count=len(touching[item.id]),
            diffs=diffs.get(item.id, {}),
        )
        entries.append(view.model_dump(mode="json"))
    return entries


# Files whose changes are read for an answer
_MAX_DIFFS = 20


def _diffs_of_files(stale: Queue, due: Sequence[Due]) -> dict[int, dict[str, str]]:
    diffs: dict[int, dict[str, str]] = {}
    read = 0
    for item in due:
        paths = {reason.name for reason in item.reasons if reason.why in (Why.CHANGED, Why.GONE)}
        for path in sorted(paths):
            if stale.tree is None or read == _MAX_DIFFS:
                return diffs
            read += 1
            text = diff_of_file(stale.tree, path, [item.id])
            if text is not None:
                diffs.setdefault(item.id, {})[path] = text
    return diffs


def _heads(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    heads: dict[int, dict[str, Any]] = {}
    for memory in Memory.objects.filter(id__in=ids).only("kind", "type", "title", "content", "updated_at"):
        heads[memory.id] = {"kind": memory.kind, "type": memory.type, "text": memory.content[:MAX_TEXT]}
        heads[memory.id] |= {"title": memory.title, "looked_at": memory.updated_at, "affirmed_by": ""}
    for decision in Decision.objects.filter(id__in=ids):
        heads[decision.id] = {"kind": StaleKind.DECISION, "type": decision.impact, "text": decision.chosen[:MAX_TEXT]}
        heads[decision.id] |= {"title": decision.title, "looked_at": decision.decided_at, "affirmed_by": ""}
    return heads


_REVERTING = f"""
SELECT l.decision_id, l.commit_id FROM decisions_commitlink l JOIN decisions_decision d ON d.id = l.decision_id
WHERE l.link_type = 'reverts' AND d.review <> '' AND l.decision_id IN {IDS}
ORDER BY l.event DESC"""


# Latest first; reverts before commits that touched a file
def _touching(stale: Queue, ids: Sequence[int]) -> dict[int, list[int]]:
    touching: dict[int, list[int]] = {entity_id: [] for entity_id in ids}
    for decision_id, commit_id in rows.fetch(_REVERTING, [json.dumps(list(ids))]):
        touching[decision_id].append(commit_id)
    for entity_id in ids:
        if entity_id in stale.governing:
            touching[entity_id] += stale.touches.of(stale.governing[entity_id])
    return touching


def _commits(stale: Queue, touching: dict[int, list[int]]) -> dict[int, list[dict[str, Any]]]:
    latest = {entity_id: commit_ids[:MAX_COMMITS] for entity_id, commit_ids in touching.items()}
    commits = commits_by_id(chain.from_iterable(latest.values()))
    by_item: dict[int, list[dict[str, Any]]] = {}
    for entity_id, commit_ids in latest.items():
        paths = stale.paths(entity_id)
        by_item[entity_id] = [on_governed(commits[commit_id], paths, MAX_FILES) for commit_id in commit_ids]
    return by_item


def _reason_view(reason: Reason, commit_count: int) -> dict[str, Any]:
    says = reason.says
    if reason.why is Why.TOUCHED and commit_count > 1:
        says = f"{commit_count} commits changed files that it governs"
    return {"why": reason.why, "since": clock.to_text(reason.moment), "says": says, "name": reason.name}


_MOST = 12
_LONGEST = 260


# Expired memories are in no pack, so their reason alone is not shown either
def _stale(request: GatherRequest) -> list[PackItem]:
    stale = queue(now=request.now)
    listed = [due for due in stale.due if any(reason.why is not Why.EXPIRED for reason in due.reasons)]
    lines = {f"#{item['id']}": stale_line(item) for item in views(stale, listed[:_MOST])}
    return [PackItem(name, f"- {line}") for name, line in lines.items() if request.concerns(line)]


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
# Entries past ``review_after``; a policy for the type takes precedence over one for the kind
_OLD = f"""{_POLICIES}
SELECT {{id}}, {greatest("{at}", "coalesce(a.affirmed_at, {at})")}, p.days
FROM policies p JOIN {{table}} ON {{kind}} = p.kind AND {{at}} <= p.cutoff
LEFT JOIN governance_affirmation a ON a.entity_id = {{id}}
WHERE (p.type = {{type}} OR (p.type = '' AND NOT EXISTS
    (SELECT 1 FROM policies own WHERE own.kind = {{kind}} AND own.type = {{type}})))
  AND coalesce(a.affirmed_at, '') <= p.cutoff AND {{live}} {{{{among}}}}"""
_OLD_MEMORIES = _OLD.format(
    id="m.id", at="m.updated_at", table="memories_memory m", kind="m.kind", type="m.type", live=LIVE_MEMORY
)
_OLD_DECISIONS = _OLD.format(
    id="d.id", at="d.decided_at", table="decisions_decision d", kind="'decision'", type="d.impact", live=LIVE_DECISION
)


class Due(NamedTuple):
    """A stale item with its reasons."""

    id: int
    reasons: list[Reason]

    @property
    def since(self) -> str:
        return min(reason.since for reason in self.reasons)

    @property
    def moment(self) -> datetime:
        return moment_of(self.since)


# Not a table: time alone makes items stale, and one commit can touch what thousands of items govern (decision 25)
@dataclass(frozen=True, slots=True)
class Queue:
    """The stale items, and what they govern."""

    # Oldest first
    due: list[Due]
    # All items that govern files, stale or not
    governing: dict[int, Governing]
    touches: Touches
    tree: WorkingTree | None = None

    def paths(self, entity_id: int) -> set[str]:
        return self.governing[entity_id].paths if entity_id in self.governing else set()


def queue(
    *, now: datetime | None = None, among: Collection[int] | None = None, tree: WorkingTree | None = None
) -> Queue:
    """Return the stale items of the current store.

    Args:
        now: the time at which ages and ends are compared; default: the present.
        among: consider these ids only.
        tree: the working tree that anchors and branches are compared with; default: they are not compared.
    """
    things = governing(among)
    touches = Touches(things.values())
    reasons: dict[int, list[Reason]] = {}
    for thing in things.values():
        first = touches.first(thing)
        if first is not None:
            reasons[thing.id] = [Reason(Why.TOUCHED, first, "a commit changed a file that it governs")]
    for entity_id, reason in _reasons(now or clock.now(), among):
        reasons.setdefault(entity_id, []).append(reason)
    for entity_id, against in tree_reasons(tree, among).items():
        reasons.setdefault(entity_id, []).extend(against)
    due = sorted(map(Due._make, reasons.items()), key=lambda due: (due.since, due.id))
    return Queue(due, things, touches, tree)


def _reasons(now: datetime, among: Collection[int] | None) -> Iterator[tuple[int, Reason]]:
    for entity_id, review, since in fetch_among(_MARKED, "d.id", among):
        yield entity_id, Reason(Why.REVERTED, since, review)
    for entity_id, ended in fetch_among(_EXPIRED, "m.id", among, [rows.time_value(now)]):
        yield entity_id, Reason(Why.EXPIRED, ended, f"it was valid until {clock.day(ended)}")
    yield from _failed(among)
    policies = []
    for name, days in project_settings().review_after.items():
        kind, _, type_name = name.partition("/")
        policies.append((kind, type_name, days, rows.time_value(now - timedelta(days=days))))
    if not policies:
        return
    parameters = [json.dumps(policies, default=str)]
    for sql, column in ((_OLD_MEMORIES, "m.id"), (_OLD_DECISIONS, "d.id")):
        for entity_id, looked_at, days in fetch_among(sql, column, among, parameters):
            since = rows.time_value(moment_of(looked_at) + timedelta(days=days))
            yield entity_id, Reason(Why.AGE, str(since), f"not checked for {counted(days, 'day')}")


_IN_FORCE = (
    f"SELECT m.id FROM memories_memory m WHERE {LIVE_MEMORY} {{among}}",
    f"SELECT d.id FROM decisions_decision d WHERE {LIVE_DECISION} {{among}}",
)


# What affirms an entry does not settle it: only a check that passes, or another one
def _failed(among: Collection[int] | None) -> Iterator[tuple[int, Reason]]:
    failed = failed_checks(among)
    if not failed:
        return
    memories, decisions = _IN_FORCE
    in_force = [*fetch_among(memories, "m.id", failed), *fetch_among(decisions, "d.id", failed)]
    for (entity_id,) in in_force:
        yield entity_id, Reason(Why.CHECK, failed[entity_id], failure_text(failed[entity_id]))
