from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from decisions.models import Decision
from governance.models import Affirmation
from governance.present import stale_line
from governance.staleness.file_changes import add_diffs, on_governed, reverting, shown_commits
from governance.staleness.schemas import StaleKind, StaleList, StaleView, Why
from governance.staleness.stale import Due, Queue, Reason, moment_of, queue
from memories.models import Memory
from memories.pack.sections import Item, Request, Section, define_section
from memoryhub.core import clock, log
from memoryhub.core.errors import NotFound
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing

MAX_TEXT = 2_000
MAX_PATHS = 50
# Shown per item
MAX_COMMITS = 5
# Shown per commit
MAX_FILES = 20


def list_stale(*, command: StaleList) -> Listing:
    """Return a page of stale items, oldest first."""
    found = queue(among=None if command.id is None else [command.id])
    matching = _matching(found.due, command)
    after = decode_cursor(command.cursor, (str, int))
    rest = [due for due in matching if not after or [due.since, due.id] > after]
    shown = views(found, rest[: command.limit], diff=command.diff, compact=command.compact)
    places = {due.id: encode_cursor(due.since, due.id) for due in rest[: command.limit]}
    return page(
        shown,
        total=len(matching),
        more=len(rest) > command.limit,
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
    found = queue()
    ids = [due.id for due in found.due]
    if entity_id is not None and entity_id not in ids:
        raise NotFound(f"#{entity_id} is not stale; the queue lists what needs rechecking", id=entity_id)
    if not ids:
        return None
    at = 0 if entity_id is None else ids.index(entity_id)
    shown = views(found, [found.due[at]], diff=True)
    if not shown:
        raise NotFound(f"#{ids[at]} was erased while it was read; open the queue again", id=ids[at])
    return Waiting(
        item=shown[0],
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


def views(found: Queue, due: Sequence[Due], *, diff: bool = False, compact: bool = False) -> list[dict[str, Any]]:
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
    touching = _touching(found, ids)
    commits = _commits(found, {entity_id: commit_ids[:MAX_COMMITS] for entity_id, commit_ids in touching.items()})
    if diff:
        add_diffs([commit for entity_id in ids for commit in commits[entity_id]])
    return [
        StaleView(
            id=thing.id,
            **_looked_at(heads[thing.id], affirmed.get(thing.id)),
            since=moment_of(thing.since),
            reasons=[_reason(reason, len(touching[thing.id])) for reason in thing.reasons],
            governs=sorted(_paths(found, thing.id))[:MAX_PATHS],
            commits=commits[thing.id],
            commit_count=len(touching[thing.id]),
        ).model_dump(mode="json")
        for thing in due
    ]


# Latest first; reverts before commits that touched a file
def _touching(found: Queue, ids: Sequence[int]) -> dict[int, list[int]]:
    back = reverting(ids)
    return {
        entity_id: [
            *back.get(entity_id, ()),
            *(found.touches.of(found.governing[entity_id]) if entity_id in found.governing else ()),
        ]
        for entity_id in ids
    }


def _commits(found: Queue, wanted: dict[int, list[int]]) -> dict[int, list[dict[str, Any]]]:
    shown = shown_commits(commit_id for commit_ids in wanted.values() for commit_id in commit_ids)
    return {
        entity_id: [on_governed(shown[commit_id], _paths(found, entity_id), MAX_FILES) for commit_id in commit_ids]
        for entity_id, commit_ids in wanted.items()
    }


def _paths(found: Queue, entity_id: int) -> set[str]:
    return found.governing[entity_id].paths if entity_id in found.governing else set()


def _looked_at(head: dict[str, Any], last: Affirmation | None) -> dict[str, Any]:
    if last is None:
        return {**head, "affirmed_by": ""}
    return {**head, "looked_at": max(head["looked_at"], last.affirmed_at), "affirmed_by": last.actor}


def _reason(reason: Reason, commit_count: int) -> dict[str, Any]:
    is_many = reason.why is Why.TOUCHED and commit_count > 1
    says = f"{commit_count} commits changed files that it governs" if is_many else reason.says
    return {"why": reason.why, "since": clock.to_text(moment_of(reason.since)), "says": says}


def _memories(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    found = Memory.objects.filter(id__in=list(ids)).values("id", "kind", "type", "title", "content", "updated_at")
    return {
        memory["id"]: {
            **{name: memory[name] for name in ("kind", "type", "title")},
            "text": memory["content"][:MAX_TEXT],
            "looked_at": memory["updated_at"],
        }
        for memory in found
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
def _stale(request: Request) -> list[Item]:
    found = queue(now=request.now)
    listed = [due for due in found.due if any(reason.why is not Why.EXPIRED for reason in due.reasons)]
    return [Item(f"#{item['id']}", f"- {stale_line(item)}") for item in views(found, listed[:_MOST])]


define_section(
    Section(
        "stale",
        "Needs recheck: memory_affirm what is still valid, else supersede or update it",
        45,
        0.1,
        _LONGEST,
        _stale,
        "memory_stale",
    )
)
