"""What can be asked of staleness: what should be looked at again, and how much that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decisions.models import Decision
from governance.models import Affirmation
from governance.staleness.diffs import add_diffs
from governance.staleness.due import Due, Queue, queue
from governance.staleness.governing import Governing
from governance.staleness.present import stale_line
from governance.staleness.schemas import StaleKind, StaleList, StaleView
from governance.staleness.touching import commits_touching
from memories.models import Memory
from memoryhub.core import clock
from memoryhub.core.errors import NotFound
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing

MAX_TEXT = 2_000
MAX_PATHS = 50
MAX_FILES = 20
"""Files of a commit that are listed."""


def list_stale(*, command: StaleList) -> Listing:
    """Return a page of what should be looked at again, what has waited longest first."""
    found = queue(among=None if command.id is None else [command.id])
    matching = _matching(found.due, command)
    after = decode_cursor(command.cursor, (str, int))
    rest = [due for due in matching if not after or [clock.to_text(due.since), due.id] > after]
    shown = views(found, rest[: command.limit], diff=command.diff, compact=command.compact)
    places = {due.id: encode_cursor(clock.to_text(due.since), due.id) for due in rest[: command.limit]}
    return page(
        shown,
        total=len(matching),
        more=len(rest) > command.limit,
        cursor_of=lambda item: places[item["id"]],
        line=stale_line,
        max_tokens=command.max_tokens,
    )


def stale_view(*, entity_id: int, diff: bool = True) -> dict[str, Any]:
    """Return one thing that should be looked at again.

    Raises:
        NotFound: it is not due.
    """
    listing = list_stale(command=StaleList(id=entity_id, diff=diff))
    if not listing.results:
        raise NotFound(f"#{entity_id} is not waiting to be affirmed; the list says what is", id=entity_id)
    return listing.results[0]


def count_stale() -> int:
    """Return how much should be looked at again."""
    return len(queue().due)


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
    ids = [each.id for each in due]
    heads = {**_memories(ids), **_decisions(ids)}
    if compact:
        return [{"id": each, "title": heads[each]["title"]} for each in ids]
    affirmed = {each.entity_id: each for each in Affirmation.objects.filter(entity_id__in=ids)}
    things = [found.governing[each] for each in ids if each in found.governing]
    commits = commits_touching(things, ids)
    if diff:
        add_diffs([commit for each in ids for commit in commits.get(each, ())])
    return [_view(each, heads[each.id], found.governing.get(each.id), commits, affirmed) for each in due]


def _view(
    due: Due,
    head: dict[str, Any],
    thing: Governing | None,
    commits: dict[int, list[dict[str, Any]]],
    affirmed: dict[int, Affirmation],
) -> dict[str, Any]:
    shown, last = commits.get(due.id, []), affirmed.get(due.id)
    return StaleView(
        id=due.id,
        **{**head, "looked_at": max(head["looked_at"], last.affirmed_at) if last else head["looked_at"]},
        since=due.since,
        reasons=[{"why": each.why, "since": clock.to_text(each.since), "says": each.says} for each in due.reasons],
        governs=sorted(thing.paths)[:MAX_PATHS] if thing else [],
        commits=[{**commit, "files": commit["files"][:MAX_FILES]} for commit in shown],
        commit_count=max(due.touched.commit_count if due.touched else 0, len(shown)),
        affirmed_by=last.actor if last else "",
    ).model_dump(mode="json")


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
