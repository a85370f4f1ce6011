"""Hits as every door shows them: each with its evidence, and with the parts that make its score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memories.models import Memory
from memories.query.candidates import PARTS
from memories.query.cursor import Asked
from memories.query.engine import Hit
from memories.search.snippets import snippet
from memories.selectors.memories import views
from memories.selectors.versions import versions_of
from memoryhub.core import rows
from memoryhub.core.dialect import IDS, json_list
from memoryhub.core.stores import StoreId, use_store


def shown(asked: Asked, hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """Return the hits as JSON data, in their order; what was erased a moment ago is left out."""
    found: dict[tuple[StoreId, int], dict[str, Any]] = {}
    for store in dict.fromkeys(hit.place.store for hit in hits):
        with use_store(store):
            items = _of_store(asked, [hit.scored.id for hit in hits if hit.place.store == store])
        found |= {(store, item["id"]): item for item in items}
    placed = [(hit, found.get((hit.place.store, hit.scored.id))) for hit in hits]
    return [_with_score(asked, hit, item) for hit, item in placed if item]


def _of_store(asked: Asked, ids: list[int]) -> list[dict[str, Any]]:
    if asked.command.compact:
        return [dict(row) for row in Memory.objects.filter(id__in=ids).values("id", "kind", "title")]
    events = _events_of(ids)
    items = [
        {**item, "content": snippet(item["content"], asked.words), "event": events.get(item["id"])}
        for item in views(list(Memory.objects.filter(id__in=ids)))
    ]
    if not asked.command.include_versions:
        return items
    histories = versions_of(ids)
    return [{**item, "versions": histories[item["id"]]} for item in items]


def _events_of(ids: list[int]) -> dict[int, int]:
    """Return the event that wrote the current version of each memory."""
    found = rows.fetch(
        f"SELECT memory_id, max(id) FROM memories_memoryversion WHERE memory_id IN {IDS} GROUP BY memory_id",
        [json_list(ids)],
    )
    return dict(found)


def _with_score(asked: Asked, hit: Hit, item: dict[str, Any]) -> dict[str, Any]:
    placed = {**item, "scope": hit.place.scope.value}
    if asked.command.compact:
        return placed
    parts = {
        name: {"value": round(value, 4), "points": round(value * getattr(asked.weights, name), 4)}
        for name, value in zip(PARTS, hit.scored.parts, strict=True)
    }
    return {**placed, "score": round(hit.scored.score, 4), "parts": parts}
