from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memories import scopes
from memories.diff import Effort, marked_diff
from memories.models import Conflict, MemoryScope
from memories.references import reference
from memories.schemas.query import ConflictGet, ConflictList
from memories.scopes import NEAREST_FIRST, Level
from memories.selectors.versions import plain_versions_of
from memoryhub.core import clock
from memoryhub.core.errors import NotFound
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search.retrieval import retrieval
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import flat, indented


def find_conflict(conflict_id: int) -> Conflict:
    """Return the conflict, resolved or not.

    Raises:
        NotFound: there is no such conflict.
    """
    conflict: Conflict | None = Conflict.objects.select_related("memory").filter(id=conflict_id).first()
    if conflict is None:
        raise NotFound(f"there is no conflict #{conflict_id} here; memory_conflicts lists those there are")
    return conflict


def open_conflicts(memory_ids: Sequence[int]) -> dict[int, list[int]]:
    """Return the ids of open conflicts, by memory."""
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


# Characters of a diff in the text for models
SHOWN = 2_000

_HEAD = ("id", "memory_id", "detected_at", "resolution", "reason", "resolved_by", "resolved_at", "resolved_version")
_OF_VERSION = ("version", "base_version", "event", "title", "content", "tags", "reason", "actor", "session_id")


def list_conflicts(*, command: ConflictList) -> Listing:
    """Return a page of conflicts, nearest scope first, newest first within a scope."""
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
    """Return a conflict, resolved or not.

    Raises:
        NotFound: there is no such conflict.
    """
    with retrieval("conflicts", command), scopes.reading(command.scope):
        return _views([find_conflict(command.id)], scopes.own_scope(), compact=False)[0]


def _levels(command: ConflictList) -> list[Level]:
    scope = MemoryScope.PROJECT if command.scope is MemoryScope.SESSION else command.scope
    return scopes.levels(scope, inherit=scope is None)


def _rank(level: Level) -> int:
    return NEAREST_FIRST.index(level.scopes[-1])


def _matching(command: ConflictList) -> Any:
    visible = outside_quarantine(Conflict.objects.all(), "memory_id")
    found = visible.select_related("memory").order_by("-id")
    if command.memory_id:
        found = found.filter(memory_id=command.memory_id)
    return found if command.all else found.filter(resolved_at__isnull=True)


# The conflicts of a scope that follow the cursor; None if the cursor is past this scope
def _after(found: Any, rank: int, reached: Sequence[int] | None) -> Any:
    if reached is None or rank > reached[0]:
        return found
    return found.filter(id__lt=reached[1]) if rank == reached[0] else None


def _views(conflicts: Sequence[Conflict], scope: MemoryScope, *, compact: bool) -> list[dict[str, Any]]:
    if compact:
        return [{"id": conflict.id, "scope": scope.value, "title": conflict.memory.title} for conflict in conflicts]
    histories = plain_versions_of([conflict.memory_id for conflict in conflicts])
    effort = Effort()
    return [{**_view(conflict, histories[conflict.memory_id], effort), "scope": scope.value} for conflict in conflicts]


def _view(conflict: Conflict, history: list[dict[str, Any]], effort: Effort) -> dict[str, Any]:
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
        "diff": marked_diff(_whole(earlier), _whole(later), effort),
    }


def _side(version: dict[str, Any]) -> dict[str, Any]:
    return {**{name: version[name] for name in _OF_VERSION}, "created_at": version["created_at"]}


# With title and tags, as they may be the only difference
def _whole(side: dict[str, Any]) -> str:
    tags = f"[{', '.join(side['tags'])}]" if side["tags"] else ""
    return "\n".join(filter(None, [side["title"], tags, side["content"]]))


def conflict_text(item: dict[str, Any]) -> str:
    """Return a conflict as text for models: both versions and their differences."""
    if "diff" not in item:
        return flat(f"conflict {reference(item)} {item['title']}")
    of = reference({"id": item["memory_id"], "scope": item["scope"]})
    state = f"resolved: {item['resolution']} by {item['resolved_by']}" if item["resolved_at"] else "open"
    deleted = ", memory deleted" if item["deleted_at"] else ""
    head = flat(f"conflict {reference(item)} ({state}{deleted}) of {of} {item['title']}")
    return "\n".join([head, _side_line("a", item["a"]), _side_line("b", item["b"]), indented(_cut(item["diff"], of))])


def _side_line(name: str, side: dict[str, Any]) -> str:
    why = f": {side['reason']}" if side["reason"] else ""
    base = f" from v{side['base_version']}" if side["base_version"] else ""
    session = f" session={side['session_id']}" if side["session_id"] else ""
    when = clock.minute(side["created_at"])
    return flat(f"{name}: v{side['version']}{base} {when} by {side['actor']}{session} event #{side['event']}{why}")


def _cut(diff: str, of: str) -> str:
    if len(diff) <= SHOWN:
        return diff or "(the texts are equal; type, attributes or source differ)"
    return f"{diff[:SHOWN]} … (memory_get {of} with versions=true shows the rest)"
