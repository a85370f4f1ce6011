"""What can be asked of staleness: what should be looked at again, and how much that is."""

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
MAX_COMMITS = 5
"""Commits of a thing that are shown."""
MAX_NEXT = 8
MAX_FILES = 20
"""Files of a commit that are listed."""


def list_stale(*, command: StaleList) -> Listing:
    """Return a page of what should be looked at again, what has waited longest first."""
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
    """One thing of the queue, and where it is in it."""

    item: dict[str, Any]
    """As ``list_stale`` has it, with diffs."""
    number: int
    total: int
    before: int | None
    after: int | None
    next_ones: list[dict[str, Any]]
    """``{"id", "title", "kind"}`` of those that come after it, at most 8."""


def waiting(*, entity_id: int | None = None) -> Waiting | None:
    """Return a thing of the queue with what the commits changed, or what has waited longest; None if nothing waits.

    Raises:
        NotFound: it is not due.
    """
    found = queue()
    ids = [due.id for due in found.due]
    if entity_id is not None and entity_id not in ids:
        raise NotFound(f"#{entity_id} does not wait to be affirmed", id=entity_id)
    if not ids:
        return None
    at = 0 if entity_id is None else ids.index(entity_id)
    return Waiting(
        item=views(found, [found.due[at]], diff=True)[0],
        number=at + 1,
        total=len(ids),
        before=ids[at - 1] if at else None,
        after=ids[at + 1] if at + 1 < len(ids) else None,
        next_ones=_briefly(ids[at + 1 : at + 1 + MAX_NEXT]),
    )


def _briefly(ids: Sequence[int]) -> list[dict[str, Any]]:
    heads = {**_memories(ids), **_decisions(ids)}
    return [{"id": each, "title": heads[each]["title"], "kind": heads[each]["kind"]} for each in ids]


def count_stale() -> int:
    """Return how much should be looked at again; asked anew when something was written, and once an hour."""
    known = (log.head(), clock.now().replace(minute=0, second=0, microsecond=0))
    if known not in _counts:
        _counts[known] = len(queue().due)
        while len(_counts) > _MOST_COUNTS:
            _counts.pop(next(iter(_counts)), None)
    return _counts[known]


_MOST_COUNTS = 32
_counts: dict[tuple[tuple[int, str], datetime], int] = {}
"""By the head of the log, whose digest names a store and its state at once, and the hour."""


def _matching(due: Sequence[Due], command: StaleList) -> list[Due]:
    matching = [each for each in due if command.why in (None, *(reason.why for reason in each.reasons))]
    if command.kind is None:
        return matching
    kinds = _kinds([each.id for each in matching])
    return [each for each in matching if kinds.get(each.id, StaleKind.DECISION) == command.kind]


def _kinds(ids: Sequence[int]) -> dict[int, str]:
    """Return the kinds of those of the ids that are memories."""
    return dict(Memory.objects.filter(id__in=list(ids)).values_list("id", "kind"))


def views(found: Queue, due: Sequence[Due], *, diff: bool = False, compact: bool = False) -> list[dict[str, Any]]:
    """Return what is due as JSON data, in its order, by five queries for any number of things."""
    if not due:
        return []
    ids = [each.id for each in due]
    heads = {**_memories(ids), **_decisions(ids)}
    if compact:
        return [{"id": each, "title": heads[each]["title"]} for each in ids]
    affirmed = {each.entity_id: each for each in Affirmation.objects.filter(entity_id__in=ids)}
    touching = _touching(found, ids)
    commits = _commits(found, {each: commit_ids[:MAX_COMMITS] for each, commit_ids in touching.items()})
    if diff:
        add_diffs([commit for each in ids for commit in commits[each]])
    return [
        StaleView(
            id=each.id,
            **_looked_at(heads[each.id], affirmed.get(each.id)),
            since=moment_of(each.since),
            reasons=[_reason(reason, len(touching[each.id])) for reason in each.reasons],
            governs=sorted(_paths(found, each.id))[:MAX_PATHS],
            commits=commits[each.id],
            commit_count=len(touching[each.id]),
        ).model_dump(mode="json")
        for each in due
    ]


def _touching(found: Queue, ids: Sequence[int]) -> dict[int, list[int]]:
    """Return the commits that make each thing due, the latest first; a revert before all that merely touched it."""
    back = reverting(ids)
    return {
        each: [*back.get(each, ()), *(found.touches.of(found.governing[each]) if each in found.governing else ())]
        for each in ids
    }


def _commits(found: Queue, wanted: dict[int, list[int]]) -> dict[int, list[dict[str, Any]]]:
    known = shown_commits(commit_id for commit_ids in wanted.values() for commit_id in commit_ids)
    return {
        each: [on_governed(known[commit_id], _paths(found, each), MAX_FILES) for commit_id in commit_ids]
        for each, commit_ids in wanted.items()
    }


def _paths(found: Queue, entity_id: int) -> set[str]:
    return found.governing[entity_id].paths if entity_id in found.governing else set()


def _looked_at(head: dict[str, Any], last: Affirmation | None) -> dict[str, Any]:
    if last is None:
        return {**head, "affirmed_by": ""}
    return {**head, "looked_at": max(head["looked_at"], last.affirmed_at), "affirmed_by": last.actor}


def _reason(reason: Reason, commit_count: int) -> dict[str, Any]:
    is_many = reason.why is Why.TOUCHED and commit_count > 1
    says = f"{commit_count} commits touched what it governs" if is_many else reason.says
    return {"why": reason.why, "since": clock.to_text(moment_of(reason.since)), "says": says}


def _memories(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    found = Memory.objects.filter(id__in=list(ids)).values("id", "kind", "type", "title", "content", "updated_at")
    return {
        each["id"]: {
            **{name: each[name] for name in ("kind", "type", "title")},
            "text": each["content"][:MAX_TEXT],
            "looked_at": each["updated_at"],
        }
        for each in found
    }


def _decisions(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    return {
        each.id: {
            "kind": StaleKind.DECISION,
            "type": each.impact,
            "title": each.title,
            "text": each.chosen[:MAX_TEXT],
            "looked_at": each.decided_at,
        }
        for each in Decision.objects.filter(id__in=list(ids))
    }


_MOST = 12
_LONGEST = 260


def _stale(request: Request) -> list[Item]:
    """Return what has waited longest, and why; nothing where nothing waits. What has expired is in no pack."""
    found = queue(now=request.now)
    told = [due for due in found.due if any(reason.why is not Why.EXPIRED for reason in due.reasons)]
    return [Item(f"#{each['id']}", f"- {stale_line(each)}") for each in views(found, told[:_MOST])]


define_section(
    Section(
        "stale",
        "To look at again: memory_affirm what holds, else supersede or update it",
        45,
        0.1,
        _LONGEST,
        _stale,
        "memory_stale",
    )
)
