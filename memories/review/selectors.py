from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef

from memories import scopes
from memories.diff import Effort, marked_diff
from memories.events import MEMORY_REVIEWED, MemoryReviewed, Verdict
from memories.kinds import attribute_columns
from memories.models import Memory, MemoryQuerySet, MemoryScope, MemoryVersion, ReviewState
from memories.present import memory_line
from memories.review.schemas import ReviewItem, ReviewList
from memories.schemas import MemoryView
from memories.selectors.memories import views
from memories.selectors.versions import plain_versions_of
from memories.superseded import is_superseded, supersedes
from memoryhub.config.current_settings import project_settings
from memoryhub.core.kinds import DEFAULT_KIND, KINDS
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.models import RawEvent
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search import retrieval
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import NO_LIMIT


class PackableMemory(NamedTuple):
    """A memory as context packs show it."""

    id: int
    kind: str
    type: str
    scope: str
    title: str
    content: str
    priority: int | None
    # In the stored format, which sorts by time
    updated_at: str
    # Where it comes from, such as the path of an imported file
    source: str


_SHOWN = "m.id, m.kind, m.type, m.scope, m.title, m.content, m.priority, m.updated_at || '', m.source"
_LIVE = f"m.deleted_at IS NULL AND NOT (m.review = 'rejected') AND m.id {OUTSIDE}"
_MEMORIES = f"SELECT {_SHOWN} FROM memories_memory m WHERE {_LIVE}"
# The accepted version, from its event, of each memory with a later proposed one; written as in the partial index of
# memories that are not accepted
_ACCEPTED_VERSIONS = (
    "SELECT m.id, v.created_at || '', e.payload_json FROM memories_memory m "
    "JOIN memories_memoryversion v ON v.memory_id = m.id AND v.version = m.accepted_version "
    "JOIN raw_events e ON e.position = v.id "
    "WHERE NOT (m.review = 'accepted') AND m.review = 'proposed' AND m.accepted_version IS NOT NULL "
    f"AND e.payload_json IS NOT NULL AND {_LIVE}"
)
# All memories less those that packs leave out: each reason has an index, and reading every memory takes half a
# microsecond for each. Sections of replaced records, which only older imports left, are not subtracted.
_COUNT = (
    "SELECT count(*) - (SELECT count(*) FROM memories_memory m WHERE {kinds} AND m.id IN ("
    "SELECT id FROM memories_memory WHERE deleted_at IS NOT NULL UNION ALL "
    "SELECT id FROM memories_memory WHERE NOT (review = 'accepted') {unless} UNION ALL "
    "SELECT id FROM memories_memory WHERE scope = 'session' AND session_id <> %s UNION ALL "
    "SELECT id FROM memories_memory WHERE valid_until <= %s UNION ALL SELECT id FROM quarantine UNION ALL "
    "SELECT r.target_id FROM memories_relation r WHERE {supersedes})) FROM memories_memory m WHERE {kinds}"
)


def pack_entries(
    condition: str,
    parameters: Sequence[Any] = (),
    *,
    order: str = "m.id",
    most: int = NO_LIMIT,
    now: datetime | None = None,
    with_superseded: bool = False,
) -> list[PackableMemory]:
    """Return live memories of the current store as context packs show them.

    Unless the project includes everything in its packs, proposed memories are left out; those with an accepted version
    are shown in that version (decision 24). Superseded ones are left out (decision 49) unless asked for.

    Args:
        condition: SQL on ``m``, the memories.
        parameters: of the condition.
        order: SQL; memories in an earlier version come last.
        most: limit for memories in their current version.
        now: leave out what has expired by then.
        with_superseded: include superseded ones.
    """
    accepted_only = project_settings().packs_accepted_only
    if not with_superseded:
        condition = f"{condition} AND NOT {is_superseded()}"
    wanted = [(condition, list(parameters))]
    if accepted_only:
        wanted.append(("m.review = 'accepted'", []))
    if now:
        wanted.append(("(m.valid_until IS NULL OR m.valid_until > %s)", [rows.time_value(now)]))
    values = [value for _, given in wanted for value in given]
    picked = " AND ".join(sql for sql, _ in wanted)
    present = rows.fetch(f"{_MEMORIES} AND {picked} ORDER BY {order} LIMIT %s", [*values, most])
    return [
        *map(PackableMemory._make, present),
        *(_accepted_versions(condition, parameters, now) if accepted_only else ()),
    ]


def count_pack_entries(kinds: str, session_id: str, now: datetime) -> int:
    """Return how many memories ``pack_entries`` has for a condition on kinds, with those of one session only."""
    unless = "AND accepted_version IS NULL" if project_settings().packs_accepted_only else "AND review = 'rejected'"
    records = rows.fetch(
        _COUNT.format(kinds=kinds, unless=unless, supersedes=supersedes()), [session_id, rows.time_value(now)]
    )
    return int(records[0][0])


def may_be_packed(review: str) -> bool:
    """Return whether packs may show a memory of the current store in its current version, given its review state."""
    return review == ReviewState.ACCEPTED or (
        review == ReviewState.PROPOSED and not project_settings().packs_accepted_only
    )


def _accepted_versions(condition: str, parameters: Sequence[Any], now: datetime | None) -> list[PackableMemory]:
    found = rows.fetch(f"{_ACCEPTED_VERSIONS} AND {condition} ORDER BY m.id DESC", [*parameters])
    as_they_were = (_as_it_was(memory_id, moment, json.loads(payload)) for memory_id, moment, payload in found)
    return [memory for memory, ends in as_they_were if not (now and ends and ends <= now)]


# The event was validated when it was written; validating it again would take most of the time of a pack
def _as_it_was(memory_id: int, moment: str, state: dict[str, Any]) -> tuple[PackableMemory, datetime | None]:
    kind = state.get("kind", DEFAULT_KIND)
    own = attribute_columns(kind, state.get("attributes", {}))
    memory = PackableMemory(
        id=memory_id,
        kind=kind,
        type=state.get("type") or KINDS[kind].default_type,
        scope=state.get("scope", MemoryScope.PROJECT),
        title=state["title"],
        content=state["content"],
        priority=own["priority"],
        updated_at=moment,
        source=state.get("source", ""),
    )
    return memory, own["valid_until"]


# Number of latest verdicts searched for one that can be undone
_RECENT_VERDICTS = 50


@dataclass(frozen=True, slots=True)
class GivenVerdict:
    """A verdict and who gave it."""

    position: int
    actor: str
    payload: MemoryReviewed


def count_waiting() -> int:
    """Return the number of proposed memories in the current store."""
    found: int = Memory.objects.in_review(ReviewState.PROPOSED).count()
    return found


def queue(state: ReviewState = ReviewState.PROPOSED) -> list[int]:
    """Return the ids of memories in a review state, oldest first."""
    return list(Memory.objects.in_review(state).order_by("updated_at", "id").values_list("id", flat=True))


def list_reviews(*, command: ReviewList) -> Listing:
    """Return a page of memories in a review state, oldest first; the cursor neither skips nor repeats."""
    with retrieval("list", command), scopes.reading(command.scope):
        matching = _matching(command)
        found = list(_after(matching, command.cursor).order_by("updated_at", "id")[: command.limit + 1])
        places = {memory.id: encode_cursor(memory.updated_at.isoformat(), memory.id) for memory in found}
        shown = found[: command.limit]
        return page(
            [{"id": memory.id, "title": memory.title} for memory in shown] if command.compact else items(shown),
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
    """Return proposed memories as JSON data, each with its evidence and what it changes."""
    histories = plain_versions_of([memory.id for memory in memories])
    effort = Effort()
    return [_item(view, histories[view["id"]], effort) for view in views(memories)]


def _item(view: dict[str, Any], history: list[dict[str, Any]], effort: Effort) -> dict[str, Any]:
    numbered = {version["version"]: version for version in history}
    present, holding = numbered[view["version"]], numbered.get(view["accepted_version"])
    diff = marked_diff(holding["content"] or "", present["content"] or "", effort) if holding else ""
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


def last_verdict(memory_id: int) -> GivenVerdict | None:
    """Return the last verdict on a memory, or None."""
    found = RawEvent.objects.filter(stream_id=f"memory:{memory_id}", event_type=MEMORY_REVIEWED.name)
    return next(map(_given, found.exclude(payload_json=None).order_by("-stream_seq")[:1]), None)


def last_verdict_of(actor: str) -> GivenVerdict | None:
    """Return the last verdict of ``actor`` that is still in effect, or None."""
    found = RawEvent.objects.filter(event_type=MEMORY_REVIEWED.name).order_by("-position")[:_RECENT_VERDICTS]
    decided: set[int] = set()
    for given in (_given(event) for event in found if event.payload_json):
        memory_id = given.payload.memory_id
        if memory_id not in decided and given.payload.verdict is not Verdict.WITHDRAWN and given.actor == actor:
            return given
        decided.add(memory_id)
    return None


def _given(event: RawEvent) -> GivenVerdict:
    payload = MemoryReviewed.model_validate(json.loads(event.payload_json or "{}"))
    return GivenVerdict(event.position, event.actor, payload)
