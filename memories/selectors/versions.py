"""The history of memories. A version's text is the payload of its event (decision 2)."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from memories.diff import Effort, marked_diff
from memories.events import MemoryState
from memories.models import MemoryVersion
from memories.schemas import VersionView
from memoryhub.core.errors import NotFound
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS


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
    payloads = dict(
        RawEvent.objects.filter(position__in=[version.id for version in versions]).values_list(
            "position", "payload_json"
        )
    )
    histories: dict[int, list[dict[str, Any]]] = {memory_id: [] for memory_id in memory_ids}
    for version in versions:
        histories[version.memory_id].append(_version_view(version, json.loads(payloads.get(version.id) or "{}")))
    return histories


_IMPORTED = (
    "SELECT v.memory_id, e.payload_json FROM memories_memoryversion v JOIN raw_events e ON e.position = v.id "
    "WHERE v.source = 'import' AND e.payload_json IS NOT NULL AND EXISTS (SELECT 1 FROM memories_memory m "
    "JOIN memories_memoryversion latest ON latest.memory_id = m.id AND latest.version = m.version "
    f"WHERE m.id = v.memory_id AND latest.source <> 'import') AND v.memory_id IN {IDS} ORDER BY v.version"
)


def imported_states(memory_ids: list[int]) -> dict[int, MemoryState]:
    """Return the state of the last import of each memory that was changed otherwise since."""
    found = rows.fetch(_IMPORTED, [json.dumps(memory_ids)]) if memory_ids else ()
    return {memory_id: _state(json.loads(text)) for memory_id, text in found}


def _state(payload: dict[str, Any]) -> MemoryState:
    return MemoryState(**{name: payload[name] for name in MemoryState.model_fields if name in payload})


def _version_view(version: MemoryVersion, payload: dict[str, Any]) -> dict[str, Any]:
    return VersionView(
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
    ).model_dump(mode="json")


def state_at(memory_id: int, version: int) -> MemoryState:
    """Return the state of a memory at a version.

    Raises:
        NotFound: it has no such version.
    """
    found = MemoryVersion.objects.filter(memory_id=memory_id, version=version).values_list("id", flat=True).first()
    if found is None:
        raise NotFound(f"#{memory_id} has no version {version}; memory_get with versions=true lists them")
    payload = json.loads(RawEvent.objects.get(position=found).payload_json or "{}")
    return _state(payload)
