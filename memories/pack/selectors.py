"""Select the memories that context packs may show, in the versions in which they show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from memories.kinds import attribute_columns
from memories.models import MemoryScope, ReviewState
from memories.superseded import is_superseded, supersedes
from memoryhub.config.current_settings import project_settings
from memoryhub.core.kinds import DEFAULT_KIND, KINDS
from memoryhub.core.log.quarantine import OUTSIDE
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


_LIVE = f"m.deleted_at IS NULL AND NOT (m.review = 'rejected') AND m.id {OUTSIDE}"
_MEMORIES = (
    "SELECT m.id, m.kind, m.type, m.scope, m.title, m.content, m.priority, m.updated_at || '', m.source "
    f"FROM memories_memory m WHERE {_LIVE}"
)
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


def packable_memories(
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
    conditions, values = [condition], [*parameters]
    if accepted_only:
        conditions.append("m.review = 'accepted'")
    if now:
        conditions.append("(m.valid_until IS NULL OR m.valid_until > %s)")
        values.append(rows.time_value(now))
    matches = rows.fetch(f"{_MEMORIES} AND {' AND '.join(conditions)} ORDER BY {order} LIMIT %s", [*values, most])
    memories = list(map(PackableMemory._make, matches))
    if accepted_only:
        memories += _accepted_versions(condition, parameters, now)
    return memories


def count_packable(kinds: str, session_id: str, now: datetime) -> int:
    """Return how many packable memories there are for a condition on kinds, with those of one session only."""
    unless = "AND accepted_version IS NULL" if project_settings().packs_accepted_only else "AND review = 'rejected'"
    sql = _COUNT.format(kinds=kinds, unless=unless, supersedes=supersedes())
    return int(rows.fetch(sql, [session_id, rows.time_value(now)])[0][0])


def may_be_packed(review: str) -> bool:
    """Return whether packs may show a memory of the current store in its current version, given its review state."""
    if review == ReviewState.PROPOSED:
        return not project_settings().packs_accepted_only
    return review == ReviewState.ACCEPTED


# The event was validated when it was written; validating it again would take most of the time of a pack
def _accepted_versions(condition: str, parameters: Sequence[Any], now: datetime | None) -> list[PackableMemory]:
    memories: list[PackableMemory] = []
    for memory_id, moment, payload in rows.fetch(
        f"{_ACCEPTED_VERSIONS} AND {condition} ORDER BY m.id DESC", [*parameters]
    ):
        state = json.loads(payload)
        kind = state.get("kind", DEFAULT_KIND)
        columns = attribute_columns(kind, state.get("attributes", {}))
        ends = columns["valid_until"]
        if now and ends and ends <= now:
            continue
        memory = PackableMemory(
            id=memory_id,
            kind=kind,
            type=state.get("type") or KINDS[kind].default_type,
            scope=state.get("scope", MemoryScope.PROJECT),
            title=state["title"],
            content=state["content"],
            priority=columns["priority"],
            updated_at=moment,
            source=state.get("source", ""),
        )
        memories.append(memory)
    return memories
