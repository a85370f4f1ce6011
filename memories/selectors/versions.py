"""The history of memories, whose texts are payloads of events (decision 2), and their conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from memories import scopes
from memories.diff import Effort, marked_diff
from memories.events import MemoryState, ProvenanceRecord
from memories.models import Conflict, MemoryScope, MemoryVersion
from memories.present import clause, reference
from memories.schemas import VersionView
from memories.schemas.query import ConflictGet, ConflictList
from memories.scopes import NEAREST_FIRST
from memories.validity.projectors import provenances_up_to
from memoryhub.core import clock, log
from memoryhub.core.errors import NotFound
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search import retrieval
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_list
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import flat, indented


def versions_of(memory_ids: list[int]) -> dict[int, list[dict[str, Any]]]:
    """Return the history of each memory, newest first, each version with its diff."""
    histories = plain_versions_of(memory_ids)
    effort = Effort()
    for history in histories.values():
        for newer, older in pairwise(history):
            newer["diff"] = marked_diff(older["content"] or "", newer["content"] or "", effort)
    return histories


def plain_versions_of(memory_ids: list[int]) -> dict[int, list[dict[str, Any]]]:
    """Return the history of each memory, newest first, with empty diffs."""
    versions = list(MemoryVersion.objects.filter(memory_id__in=memory_ids).order_by("-version"))
    payloads = log.events().at(version.id for version in versions).payloads()
    histories: dict[int, list[dict[str, Any]]] = {memory_id: [] for memory_id in memory_ids}
    for version in versions:
        payload = payloads.get(version.id, {})
        view = VersionView(
            event=version.id,
            version=version.version,
            base_version=version.base_version,
            conflicts_with=version.conflicts_with,
            title=payload.get("title"),
            content=payload.get("content"),
            tags=payload.get("tags", []),
            type=payload.get("type"),
            attributes=payload.get("attributes", {}),
            diff="",
            reason=version.reason,
            actor=version.actor,
            source=version.source,
            session_id=version.session_id,
            created_at=version.created_at,
        )
        histories[version.memory_id].append(view.model_dump(mode="json"))
    return histories


def imported_states(memory_ids: list[int]) -> dict[int, MemoryState]:
    """Return the state of the last import of each memory that was changed otherwise since."""
    versions = MemoryVersion.objects.filter(memory_id__in=memory_ids).order_by("version")
    imported: dict[int, int] = {}
    last_sources: dict[int, str] = {}
    for position, memory_id, source in versions.values_list("id", "memory_id", "source"):
        last_sources[memory_id] = source
        if source == "import":
            imported[memory_id] = position
    changed = {position: memory_id for memory_id, position in imported.items() if last_sources[memory_id] != "import"}
    return {
        changed[position]: MemoryState.of_stored(payload)
        for position, payload in log.events().at(changed).payloads().items()
    }


def state_at(memory_id: int, version: int) -> MemoryState:
    """Return the state of a memory at a version.

    Raises:
        NotFound: it has no such version.
    """
    positions = MemoryVersion.objects.filter(memory_id=memory_id, version=version).values_list("id", flat=True)
    position = positions.first()
    if position is None:
        raise NotFound(f"#{memory_id} has no version {version}; memory_get with versions=true lists them")
    payloads = log.events().at([position]).payloads()
    return MemoryState.of_stored(payloads.get(position, {}))


def provenance_at(memory_id: int, version: int) -> ProvenanceRecord:
    """Return where a version of a memory was learnt, and the code that it was about when the next one was written."""
    following = MemoryVersion.objects.filter(memory_id=memory_id, version=version + 1).values_list("id", flat=True)
    next_version = following.first()
    position = next_version - 1 if next_version else None
    return provenances_up_to([f"memory:{memory_id}"], position).get(memory_id, ProvenanceRecord())


def find_conflict(conflict_id: int) -> Conflict:
    """Return the conflict, resolved or not.

    Raises:
        NotFound: there is no such conflict.
    """
    conflict: Conflict | None = Conflict.objects.select_related("memory").filter(id=conflict_id).first()
    if conflict is None:
        raise NotFound(f"there is no conflict #{conflict_id} here; memory_conflicts lists those there are")
    return conflict


@rows.InSteps
def open_conflicts(memory_ids: Sequence[int]) -> rows.Steps[dict[int, list[int]]]:
    """Return the ids of open conflicts, by memory."""
    # Raw: each write and search asks
    sql = f"SELECT memory_id, id FROM memories_conflict WHERE resolved_at IS NULL AND memory_id IN {IDS} ORDER BY id"
    (conflicts,) = yield [(sql, [json_list(memory_ids)])]
    grouped: dict[int, list[int]] = {}
    for memory_id, conflict_id in conflicts:
        grouped.setdefault(memory_id, []).append(conflict_id)
    return grouped


# Characters of a diff in the text for models
MAX_DIFF = 2_000

_HEAD = ("id", "memory_id", "detected_at", "resolution", "reason", "resolved_by", "resolved_at", "resolved_version")
_OF_VERSION = "version base_version event title content tags reason actor session_id created_at".split()


def list_conflicts(*, command: ConflictList) -> Listing:
    """Return a page of conflicts, nearest scope first, newest first within a scope."""
    with retrieval("conflicts", command):
        reached = decode_cursor(command.cursor, (int, int))
        items: list[dict[str, Any]] = []
        total = 0
        # The conflicts of a session's memories are the project's
        scope = MemoryScope.PROJECT if command.scope is MemoryScope.SESSION else command.scope
        for level in scopes.levels(scope, inherit=scope is None):
            with use_store(level.store):
                conflicts = _matching(command)
                total += conflicts.count()
                count = command.limit + 1 - len(items)
                following = list(_after(conflicts, level.rank, reached)[:count])
                items += _views(following, level.scopes[-1], compact=command.compact)
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


def _matching(command: ConflictList) -> Any:
    conflicts = Conflict.objects.select_related("memory").order_by("-id")
    if command.memory_id:
        conflicts = conflicts.filter(memory_id=command.memory_id)
    if not command.all:
        conflicts = conflicts.filter(resolved_at__isnull=True)
    return outside_quarantine(conflicts, "memory_id")


# The conflicts of a scope that follow the cursor
def _after(conflicts: Any, rank: int, reached: Sequence[int] | None) -> Any:
    if reached is None or rank > reached[0]:
        return conflicts
    return conflicts.filter(id__lt=reached[1]) if rank == reached[0] else conflicts.none()


def _views(conflicts: Sequence[Conflict], scope: MemoryScope, *, compact: bool) -> list[dict[str, Any]]:
    if compact:
        return [{"id": conflict.id, "scope": scope.value, "title": conflict.memory.title} for conflict in conflicts]
    histories = plain_versions_of([conflict.memory_id for conflict in conflicts])
    effort = Effort()
    views = []
    for conflict in conflicts:
        numbered = {version["version"]: version for version in histories[conflict.memory_id]}
        earlier = numbered[conflict.version_a]
        later = numbered[conflict.version_b]
        views.append(
            {
                **{name: getattr(conflict, name) for name in _HEAD},
                "kind": conflict.memory.kind,
                "title": conflict.memory.title,
                "deleted_at": conflict.memory.deleted_at,
                "split_id": conflict.split_id,
                "a": {name: earlier[name] for name in _OF_VERSION},
                "b": {name: later[name] for name in _OF_VERSION},
                "diff": marked_diff(_whole(earlier), _whole(later), effort),
                "scope": scope.value,
            }
        )
    return views


# With title and tags, as they may be the only difference
def _whole(side: dict[str, Any]) -> str:
    tags = clause("[", ", ".join(side["tags"]), "]")
    return "\n".join(filter(None, [side["title"], tags, side["content"]]))


def conflict_text(item: dict[str, Any]) -> str:
    """Return a conflict as text for models: both versions and their differences."""
    if "diff" not in item:
        return flat(f"conflict {reference(item)} {item['title']}")
    of = reference({"id": item["memory_id"], "scope": item["scope"]})
    state = f"resolved: {item['resolution']} by {item['resolved_by']}" if item["resolved_at"] else "open"
    deleted = ", memory deleted" if item["deleted_at"] else ""
    head = flat(f"conflict {reference(item)} ({state}{deleted}) of {of} {item['title']}")
    return "\n".join(
        [head, conflict_side("a", item["a"]), conflict_side("b", item["b"]), indented(_cut(item["diff"], of))]
    )


def conflict_side(name: str, side: dict[str, Any]) -> str:
    """Return one of the two versions of a conflict as a line."""
    why = clause(": ", side["reason"])
    base = clause(" from v", side["base_version"])
    session = clause(" session=", side["session_id"])
    when = clock.minute(side["created_at"])
    return flat(f"{name}: v{side['version']}{base} {when} by {side['actor']}{session} event #{side['event']}{why}")


def _cut(diff: str, of: str) -> str:
    if len(diff) <= MAX_DIFF:
        return diff or "(the texts are equal; type, attributes or source differ)"
    return f"{diff[:MAX_DIFF]} … (memory_get {of} with versions=true shows the rest)"
