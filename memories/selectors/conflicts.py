"""Conflicts: which there are, and which memories have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memories import scopes
from memories.diff import marked_diff
from memories.models import Conflict, MemoryScope
from memories.references import reference
from memories.schemas.query import ConflictGet, ConflictList
from memories.scopes import NEAREST_FIRST, Level
from memories.selectors.versions import versions_of
from memoryhub.core.errors import NotFound
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search.retrieval import retrieval
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import flat, indented


def find_conflict(conflict_id: int) -> Conflict:
    """Return the conflict, settled or not.

    Raises:
        NotFound: there is none of that id.
    """
    conflict: Conflict | None = Conflict.objects.select_related("memory").filter(id=conflict_id).first()
    if conflict is None:
        raise NotFound(f"there is no conflict #{conflict_id} here; memory_conflicts lists those there are")
    return conflict


def open_conflicts(memory_ids: Sequence[int]) -> dict[int, list[int]]:
    """Return the ids of the unsettled conflicts of each memory that has one."""
    if not memory_ids:
        return {}
    found = rows.fetch(
        "SELECT memory_id, id FROM memories_conflict WHERE resolved_at IS NULL AND memory_id IN "
        f"({', '.join(['%s'] * len(memory_ids))}) ORDER BY id",
        list(memory_ids),
    )
    grouped: dict[int, list[int]] = {}
    for memory_id, conflict_id in found:
        grouped.setdefault(memory_id, []).append(conflict_id)
    return grouped


SHOWN = 2_000
"""Characters of a difference that a model is shown."""

_HEAD = ("id", "memory_id", "detected_at", "resolution", "reason", "resolved_by", "resolved_at", "resolved_version")
_OF_VERSION = ("version", "base_version", "event", "title", "content", "tags", "reason", "actor", "session_id")


def list_conflicts(*, command: ConflictList) -> Listing:
    """Return a page of conflicts, those of the nearest scope first, and of each scope's the newest first."""
    with retrieval("conflicts", command):
        reached = decode_cursor(command.cursor, (int, int))
        items: list[dict[str, Any]] = []
        total = 0
        for level in _levels(command):
            with use_store(level.store):
                found = _matching(command)
                total += found.count()
                rest = _after(found, _rank(level), reached)
                if len(items) <= command.limit and rest is not None:
                    items += _views(
                        list(rest[: command.limit + 1 - len(items)]), level.scopes[-1], compact=command.compact
                    )
        return page(
            items[: command.limit],
            total=total,
            more=len(items) > command.limit,
            cursor_of=lambda item: encode_cursor(NEAREST_FIRST.index(item["scope"]), item["id"]),
            line=conflict_text,
            max_tokens=command.max_tokens,
        )


def get_conflict(*, command: ConflictGet) -> dict[str, Any]:
    """Return one conflict, settled or not.

    Raises:
        NotFound: there is none of that id.
    """
    with retrieval("conflicts", command), scopes.reading(command.scope):
        return _views([find_conflict(command.id)], scopes.own_scope(), compact=False)[0]


def _levels(command: ConflictList) -> list[Level]:
    scope = MemoryScope.PROJECT if command.scope is MemoryScope.SESSION else command.scope
    return scopes.levels(scope, inherit=scope is None)


def _rank(level: Level) -> int:
    return NEAREST_FIRST.index(level.scopes[-1])


def _matching(command: ConflictList) -> Any:
    told = outside_quarantine(Conflict.objects.all(), "memory_id")
    found = told.select_related("memory").order_by("-id")
    if command.memory_id:
        found = found.filter(memory_id=command.memory_id)
    return found if command.all else found.filter(resolved_at__isnull=True)


def _after(found: Any, rank: int, reached: Sequence[int] | None) -> Any:
    """Return those that come after what the page before ended with; None where none do."""
    if reached is None or rank > reached[0]:
        return found
    return found.filter(id__lt=reached[1]) if rank == reached[0] else None


def _views(conflicts: Sequence[Conflict], scope: MemoryScope, *, compact: bool) -> list[dict[str, Any]]:
    if compact:
        return [{"id": each.id, "scope": scope.value, "title": each.memory.title} for each in conflicts]
    histories = versions_of([each.memory_id for each in conflicts])
    return [{**_view(each, histories[each.memory_id]), "scope": scope.value} for each in conflicts]


def _view(conflict: Conflict, history: list[dict[str, Any]]) -> dict[str, Any]:
    numbered = {version["version"]: version for version in history}
    earlier, later = (_side(numbered[number]) for number in (conflict.version_a, conflict.version_b))
    return {
        **{name: getattr(conflict, name) for name in _HEAD},
        "kind": conflict.memory.kind,
        "title": conflict.memory.title,
        "deleted_at": conflict.memory.deleted_at,
        "split_id": conflict.split_id,
        "a": earlier,
        "b": later,
        "diff": marked_diff(_whole(earlier), _whole(later)),
    }


def _side(version: dict[str, Any]) -> dict[str, Any]:
    return {**{name: version[name] for name in _OF_VERSION}, "created_at": version["created_at"]}


def _whole(side: dict[str, Any]) -> str:
    """Return what a version says; its title and tags too, for they may be all that differs."""
    tags = f"[{', '.join(side['tags'])}]" if side["tags"] else ""
    return "\n".join(filter(None, [side["title"], tags, side["content"]]))


def conflict_text(item: dict[str, Any]) -> str:
    """Return a conflict for a model: what it is about, who wrote each version and when, and what differs."""
    if "diff" not in item:
        return flat(f"conflict {reference(item)} {item['title']}")
    of = reference({"id": item["memory_id"], "scope": item["scope"]})
    state = f"settled: {item['resolution']} by {item['resolved_by']}" if item["resolved_at"] else "open"
    deleted = ", memory deleted" if item["deleted_at"] else ""
    head = flat(f"conflict {reference(item)} ({state}{deleted}) of {of} {item['title']}")
    return "\n".join([head, _side_line("a", item["a"]), _side_line("b", item["b"]), indented(_cut(item["diff"], of))])


def _side_line(name: str, side: dict[str, Any]) -> str:
    why = f": {side['reason']}" if side["reason"] else ""
    base = f" from v{side['base_version']}" if side["base_version"] else ""
    session = f" session={side['session_id']}" if side["session_id"] else ""
    when = side["created_at"][:19]
    return flat(f"{name}: v{side['version']}{base} {when} by {side['actor']}{session} event #{side['event']}{why}")


def _cut(diff: str, of: str) -> str:
    if len(diff) <= SHOWN:
        return diff or "(the texts are equal; type, attributes or source differ)"
    return f"{diff[:SHOWN]} … (memory_get {of} with versions=true shows all)"
