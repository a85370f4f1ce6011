"""What waits for a person, and what she has said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef

from memories import scopes
from memories.diff import marked_diff
from memories.events import MEMORY_REVIEWED, MemoryReviewed, Verdict
from memories.kinds import attribute_columns
from memories.models import Memory, MemoryQuerySet, MemoryScope, MemoryVersion, ReviewState
from memories.present import memory_line
from memories.review.schemas import ReviewItem, ReviewList
from memories.schemas import MemoryView
from memories.selectors.memories import views
from memories.selectors.versions import versions_of
from memoryhub.config.project_settings import project_settings
from memoryhub.core.kinds.builtin import DEFAULT_KIND, KINDS
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.models import RawEvent
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search.retrieval import retrieval
from memoryhub.core.stores import rows


class PackEntry(NamedTuple):
    """A memory as packs tell it."""

    id: int
    kind: str
    type: str
    scope: str
    title: str
    content: str
    priority: int | None
    updated_at: str
    """A time as the store keeps it, in whose order times come too."""


_SHOWN = "m.id, m.kind, m.type, m.scope, m.title, m.content, m.priority, m.updated_at || ''"
_LIVE = f"m.deleted_at IS NULL AND NOT (m.review = 'rejected') AND m.id {OUTSIDE}"
_MEMORIES = f"SELECT {_SHOWN} FROM memories_memory m WHERE {_LIVE}"
_HOLDING = (
    "SELECT m.id, v.created_at || '', e.payload_json FROM memories_memory m "
    "JOIN memories_memoryversion v ON v.memory_id = m.id AND v.version = m.accepted_version "
    "JOIN raw_events e ON e.position = v.id "
    "WHERE NOT (m.review = 'accepted') AND m.review = 'proposed' AND m.accepted_version IS NOT NULL "
    f"AND e.payload_json IS NOT NULL AND {_LIVE}"
)


def pack_entries(
    condition: str,
    parameters: Sequence[Any] = (),
    *,
    order: str = "m.id",
    most: int = -1,
    now: datetime | None = None,
) -> list[PackEntry]:
    """Return live memories of the current store as packs tell them.

    What waits for a person is left out, and where a version of it was accepted before, it is told as it was then;
    unless the project has its packs tell everything.

    Args:
        condition: an SQL condition on ``m``, the memories, which it and its ``parameters`` pick.
        parameters: of the condition.
        order: by what, in SQL; those of which a later version waits come last.
        most: so many of those that are as they were accepted.
        now: leave out what has expired by then.
    """
    accepted_only = project_settings().packs_accepted_only
    wanted = [(condition, list(parameters))]
    if accepted_only:
        wanted.append(("m.review = 'accepted'", []))
    if now:
        wanted.append(("(m.valid_until IS NULL OR m.valid_until > %s)", [rows.time_value(now)]))
    values = [value for _, given in wanted for value in given]
    picked = " AND ".join(sql for sql, _ in wanted)
    present = rows.fetch(f"{_MEMORIES} AND {picked} ORDER BY {order} LIMIT %s", [*values, most])
    return [*map(PackEntry._make, present), *(_holding(condition, parameters, now) if accepted_only else ())]


def may_be_packed(review: str) -> bool:
    """Whether packs may tell a memory of the current store as it is now, by how it stands."""
    return review == ReviewState.ACCEPTED or (
        review == ReviewState.PROPOSED and not project_settings().packs_accepted_only
    )


def _holding(condition: str, parameters: Sequence[Any], now: datetime | None) -> list[PackEntry]:
    """Return those of which a later version waits, each as it was accepted, unless that has expired."""
    found = rows.fetch(f"{_HOLDING} AND {condition} ORDER BY m.id DESC", [*parameters])
    as_they_were = (_as_it_was(memory_id, moment, json.loads(payload)) for memory_id, moment, payload in found)
    return [memory for memory, ends in as_they_were if not (now and ends and ends <= now)]


def _as_it_was(memory_id: int, moment: str, state: dict[str, Any]) -> tuple[PackEntry, datetime | None]:
    """Return a memory as an event wrote it, and when that state expires.

    What is in the log was validated when it was written; to do so again would take most of a pack's time.
    """
    kind = state.get("kind", DEFAULT_KIND)
    own = attribute_columns(kind, state.get("attributes", {}))
    memory = PackEntry(
        id=memory_id,
        kind=kind,
        type=state.get("type") or KINDS[kind].default_type,
        scope=state.get("scope", MemoryScope.PROJECT),
        title=state["title"],
        content=state["content"],
        priority=own["priority"],
        updated_at=moment,
    )
    return memory, own["valid_until"]


_REMEMBERED = 50
"""So many of the latest verdicts are looked through for one that can be taken back."""


@dataclass(frozen=True, slots=True)
class Given:
    """A verdict that a person gave."""

    position: int
    actor: str
    payload: MemoryReviewed


def count_waiting() -> int:
    """Return how many memories of the current store wait for a person."""
    found: int = Memory.objects.in_review(ReviewState.PROPOSED).count()
    return found


def queue(state: ReviewState = ReviewState.PROPOSED) -> list[int]:
    """Return the ids of what is in a state, what has waited longest first."""
    return list(Memory.objects.in_review(state).order_by("updated_at", "id").values_list("id", flat=True))


def list_reviews(*, command: ReviewList) -> Listing:
    """Return a page of what waits, what has waited longest first; the cursor neither skips nor repeats."""
    with retrieval("list", command), scopes.reading(command.scope):
        matching = _matching(command)
        found = list(_after(matching, command.cursor).order_by("updated_at", "id")[: command.limit + 1])
        places = {memory.id: encode_cursor(memory.updated_at.isoformat(), memory.id) for memory in found}
        shown = found[: command.limit]
        return page(
            [{"id": each.id, "title": each.title} for each in shown] if command.compact else items(shown),
            total=matching.count(),
            more=len(found) > command.limit,
            cursor_of=lambda item: places[item["id"]],
            line=memory_line,
            max_tokens=command.max_tokens,
        )


def _matching(command: ReviewList) -> MemoryQuerySet:
    wanted = {"kind": command.kind, "type": command.type, "session_id": command.session_id}
    found: MemoryQuerySet = Memory.objects.in_review(command.review)
    found = found.filter(**{name: value for name, value in wanted.items() if value})
    written = {name: getattr(command, name) for name in ("actor", "source") if getattr(command, name)}
    if written:
        present = MemoryVersion.objects.filter(memory_id=OuterRef("id"), version=OuterRef("version"))
        found = found.filter(Exists(present.filter(**written)))
    return found


def _after(matching: MemoryQuerySet, cursor: str | None) -> MemoryQuerySet:
    parts = decode_cursor(cursor, (str, int))
    if parts is None:
        return matching
    moment, memory_id = parts
    return matching.filter(updated_at__gt=moment) | matching.filter(updated_at=moment, id__gt=memory_id)


def items(memories: Sequence[Memory]) -> list[dict[str, Any]]:
    """Return memories that wait as JSON data, each with its evidence and what it changes."""
    histories = versions_of([memory.id for memory in memories])
    return [_item(view, histories[view["id"]]) for view in views(memories)]


def _item(view: dict[str, Any], history: list[dict[str, Any]]) -> dict[str, Any]:
    numbered = {version["version"]: version for version in history}
    present, holding = numbered[view["version"]], numbered.get(view["accepted_version"])
    diff = marked_diff(holding["content"] or "", present["content"] or "") if holding else ""
    return ReviewItem(
        **{name: view[name] for name in MemoryView.model_fields},
        event=present["event"],
        actor=present["actor"],
        door=present["source"],
        proposed_in=present["session_id"],
        proposed_at=present["created_at"],
        change_reason=present["reason"],
        diff=diff,
    ).model_dump(mode="json")


def last_verdict(memory_id: int) -> Given | None:
    """Return the last verdict on a memory, or None where nobody gave one."""
    found = RawEvent.objects.filter(stream_id=f"memory:{memory_id}", event_type=MEMORY_REVIEWED.name)
    return next(map(_given, found.exclude(payload_json=None).order_by("-stream_seq")[:1]), None)


def last_verdict_of(actor: str) -> Given | None:
    """Return the last verdict that someone gave and that still stands as she gave it, or None."""
    found = RawEvent.objects.filter(event_type=MEMORY_REVIEWED.name).order_by("-position")[:_REMEMBERED]
    decided: set[int] = set()
    for given in (_given(event) for event in found if event.payload_json):
        memory_id = given.payload.memory_id
        if memory_id not in decided and given.payload.verdict is not Verdict.WITHDRAWN and given.actor == actor:
            return given
        decided.add(memory_id)
    return None


def _given(event: RawEvent) -> Given:
    payload = MemoryReviewed.model_validate(json.loads(event.payload_json or "{}"))
    return Given(event.position, event.actor, payload)
