"""What the events of a selection did, by the thing that they did it to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from governance.taint.selecting import Header, Selected, listed
from memoryhub.core import rows

GROUPS = {
    "memories_created": "Memories written",
    "memories_revised": "Memories revised",
    "memories_deleted": "Memories deleted",
    "memories_restored": "Memories restored",
    "decisions": "Decisions recorded",
    "marks": "Decisions marked",
    "edges": "Edges between decisions",
    "evidence": "Evidence of decisions",
    "relations": "Relations made",
    "relations_removed": "Relations taken away",
    "tags": "Tags described",
    "settings": "Settings changed",
    "profile": "The project described",
    "commits": "Commits recorded",
    "iterations": "Iterations begun",
    "sessions": "Sessions begun or ended",
    "turns": "Turns begun",
    "messages": "Messages, commands and notes",
    "other": "Other events",
}
"""Every group of what a selection did, and what a page calls it."""

_TYPES = {
    "memory.written": "memories_created",
    "memory.deleted": "memories_deleted",
    "memory.restored": "memories_restored",
    "decision.recorded": "decisions",
    "decision.marked": "marks",
    "decision.linked": "edges",
    "decision.evidenced": "evidence",
    "commit.linked": "evidence",
    "relation.created": "relations",
    "relation.deleted": "relations_removed",
    "tag.created": "tags",
    "project.configured": "settings",
    "project.described": "profile",
    "commit.recorded": "commits",
    "iteration.started": "iterations",
    "turn.began": "turns",
}
_FIRST_PARTS = ("message", "file", "command", "note", "phase", "gate", "user", "context")
"""Of the types of what clients tell of their work."""
_OF_THE_ENTITY = frozenset({"memories_deleted", "memories_restored", "marks", "relations_removed"})
"""Groups whose events happened to a thing that others may have made."""


@dataclass(slots=True)
class Touched:
    """A thing of one group, and the events of the selection that touched it."""

    id: int
    events: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The first of the events."""
        return self.events[0]


Direct = Mapping[str, Mapping[int, Touched]]
"""By group and id."""


def touched_by(selected: Selected) -> Direct:
    """Return what the events did, by group; every event is in one."""
    found: dict[str, dict[int, Touched]] = {name: {} for name in GROUPS}
    for header in selected.headers:
        group = _group_of(header)
        if group:
            _add(found[group], header.entity if group in _OF_THE_ENTITY else header.position, header.position)
    _add_revised(found, selected)
    _add_sessions(found, selected)
    return found


def _group_of(header: Header) -> str:
    """Return the group of an event, "" where it takes more than its type to know what it happened to."""
    if header.type in ("memory.revised", "session.started", "session.ended"):
        return ""
    known = _TYPES.get(header.type)
    if known:
        return known
    told = header.type.partition(".")[0] in _FIRST_PARTS and header.type != "context.packed"
    return "messages" if told else "other"


def _add(group: dict[int, Touched], thing: int, position: int) -> None:
    group.setdefault(thing, Touched(thing)).events.append(position)


def _add_revised(found: dict[str, dict[int, Touched]], selected: Selected) -> None:
    revised = [each.position for each in selected.of("memory.revised")]
    versions = rows.fetch(
        "SELECT id, memory_id, version FROM memories_memoryversion "
        "WHERE id IN (SELECT value FROM json_each(%s)) ORDER BY id",
        [listed(revised)],
    )
    created = found["memories_created"]
    for position, memory_id, version in versions:
        group = created if memory_id in created else found["memories_revised"]
        _add(group, memory_id, position)
        group[memory_id].versions.append(version)


def _add_sessions(found: dict[str, dict[int, Touched]], selected: Selected) -> None:
    """A session's row tells its purpose and its summary: whoever began or ended it wrote them."""
    events = selected.of("session.started", "session.ended")
    ids = session_ids({each.stream.partition(":")[2] for each in events})
    for each in events:
        session = ids.get(each.stream.partition(":")[2])
        _add(found["sessions" if session else "other"], session or each.position, each.position)


def session_ids(names: Iterable[str]) -> dict[str, int]:
    """Return the ids of sessions, by name."""
    found = rows.fetch(
        "SELECT session_id, id FROM sessions_app_session WHERE session_id IN (SELECT value FROM json_each(%s))",
        [json.dumps(sorted(names))],
    )
    return dict(found)


def in_groups(direct: Direct, wanted: Callable[[str], bool]) -> list[Touched]:
    """Return the things of some groups."""
    return [each for name, group in direct.items() if wanted(name) for each in group.values()]
