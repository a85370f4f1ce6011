"""Hits as every door shows them: each with its evidence, and with the parts that make its score."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memories.models import Memory
from memories.present import memory_line, version_line
from memories.query import names
from memories.query.candidates import PARTS, Candidates, Scored, can_have
from memories.query.cursor import Asked
from memories.query.scope_ranges import Place
from memories.schemas.query import QueryOrder
from memories.search.pipeline import by_index
from memories.search.snippets import snippet
from memories.selectors.memories import views
from memories.selectors.versions import versions_of
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_list
from memoryhub.core.stores.store import StoreId, use_store
from memoryhub.core.text import flat


@dataclass(frozen=True, slots=True)
class Hit:
    """A result and where it is."""

    place: Place
    scored: Scored


@dataclass(frozen=True, slots=True)
class Answered:
    """One page of an answer."""

    hits: list[Hit]
    total: int
    more: bool
    mode: str | None
    """How words were looked for; None where none were."""


def answer(asked: Asked, *, mode: str) -> Answered:
    """Return the page that is asked for.

    Args:
        asked: the question.
        mode: how words are looked for: ``auto``, ``fts5`` or ``basic``.
    """
    total, pages, used = 0, [], set()
    for index, place in enumerate(asked.places):
        if can_have(asked, place):
            with use_store(place.store):
                basic = not by_index(mode) if asked.command.search else False
                candidates = Candidates(asked, place, basic=basic)
                count, page = candidates.page(_hidden(candidates, asked.places[:index]))
            total += count
            pages.append([Hit(place, scored) for scored in page])
            used.add("basic" if basic else "fts5")
    hits = list(_merged(asked, pages))
    limit = asked.command.limit
    told = min(used, default="fts5") if asked.command.search else None
    return Answered(hits[:limit], total, len(hits) > limit, told)


def _hidden(candidates: Candidates, nearer: Sequence[Place]) -> set[int]:
    """Return the ids of the candidates whose name a nearer memory has."""
    if not nearer:
        return set()
    named = candidates.named()
    taken = names.taken(nearer, ((kind, title) for _, kind, title in named))
    return {memory_id for memory_id, kind, title in named if (kind, title) in taken}


def _merged(asked: Asked, pages: list[list[Hit]]) -> Iterable[Hit]:
    """Merge pages that are in order each; where two keys are equal, the nearer scope's comes first."""
    if asked.command.order is QueryOrder.NAME:
        return heapq.merge(*pages, key=lambda hit: (hit.scored.key, hit.place.rank))
    return heapq.merge(*pages, key=lambda hit: (-float(hit.scored.key), hit.place.rank))


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


def query_line(item: dict[str, Any]) -> str:
    """Return a result as one line: what it is, its session, its score, the words around what matched; then versions."""
    if "score" not in item:
        return memory_line(item)
    session = f" session={item['session_id']}" if item["session_id"] else ""
    text = "" if item["content"] in ("", item["title"]) else f": {item['content']}"
    versions = [version_line(version) for version in item.get("versions", [])]
    return "\n".join([flat(f"{memory_line(item)}{session} {score_text(item)}{text}"), *versions])


def score_text(item: dict[str, Any]) -> str:
    """Return ``score 7.1 (tags 3.0, scope 1.3, recency .4)``: what each part brought; parts of nothing are left out."""
    told = [f"{name} {_short(part['points'])}" for name, part in item["parts"].items() if part["points"] >= 0.05]
    return f"score {item['score']:.1f} ({', '.join(told)})" if told else f"score {item['score']:.1f}"


def _short(points: float) -> str:
    return f"{points:.1f}".removeprefix("0")
