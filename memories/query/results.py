from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memories.inheritance import Place, hidden_by, occupied
from memories.models import Memory
from memories.present import memory_line, version_line
from memories.query.candidates import PARTS, Candidates, Scored, can_have
from memories.query.cursor import Question
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
    place: Place
    scored: Scored


@dataclass(frozen=True, slots=True)
class Page:
    hits: list[Hit]
    total: int
    more: bool
    # How words were searched; None if there were none
    mode: str | None


def answer(question: Question, *, mode: str) -> Page:
    """Return a page of results.

    Args:
        question: the question.
        mode: ``auto``, ``fts5`` or ``basic``.
    """
    total, pages, used = 0, [], set()
    for index, place in enumerate(question.places):
        if can_have(question, place):
            nearer = occupied(question.places[:index])
            with use_store(place.store):
                basic = not by_index(mode) if question.command.search else False
                candidates = Candidates(question, place, basic=basic)
                names = candidates.names() if nearer else {}
            hidden = hidden_by(nearer, names)
            with use_store(place.store):
                count, page = candidates.page(hidden)
            total += count
            pages.append([Hit(place, scored) for scored in page])
            used.add("basic" if basic else "fts5")
    hits = list(_merged(question, pages))
    limit = question.command.limit
    mode_used = min(used, default="fts5") if question.command.search else None
    return Page(hits[:limit], total, len(hits) > limit, mode_used)


def _merged(question: Question, pages: list[list[Hit]]) -> Iterable[Hit]:
    # At equal keys the nearer scope comes first
    if question.command.order is QueryOrder.NAME:
        return heapq.merge(*pages, key=lambda hit: (hit.scored.key, hit.place.rank))
    return heapq.merge(*pages, key=lambda hit: (-float(hit.scored.key), hit.place.rank))


def shown(question: Question, hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """Return the hits as JSON data, in order; memories erased meanwhile are left out."""
    found: dict[tuple[StoreId, int], dict[str, Any]] = {}
    for store in dict.fromkeys(hit.place.store for hit in hits):
        with use_store(store):
            items = _of_store(question, [hit.scored.id for hit in hits if hit.place.store == store])
        found |= {(store, item["id"]): item for item in items}
    placed = [(hit, found.get((hit.place.store, hit.scored.id))) for hit in hits]
    return [_with_score(question, hit, item) for hit, item in placed if item]


def _of_store(question: Question, ids: list[int]) -> list[dict[str, Any]]:
    if question.command.compact:
        return [dict(row) for row in Memory.objects.filter(id__in=ids).values("id", "kind", "title")]
    events = _events_of(ids)
    items = [
        {**item, "content": snippet(item["content"], question.words), "event": events.get(item["id"])}
        for item in views(list(Memory.objects.filter(id__in=ids)))
    ]
    if not question.command.include_versions:
        return items
    histories = versions_of(ids)
    return [{**item, "versions": histories[item["id"]]} for item in items]


def _events_of(ids: list[int]) -> dict[int, int]:
    found = rows.fetch(
        f"SELECT memory_id, max(id) FROM memories_memoryversion WHERE memory_id IN {IDS} GROUP BY memory_id",
        [json_list(ids)],
    )
    return dict(found)


def _with_score(question: Question, hit: Hit, item: dict[str, Any]) -> dict[str, Any]:
    placed = {**item, "scope": hit.place.scope.value}
    if question.command.compact:
        return placed
    parts = {
        name: {"value": round(value, 4), "points": round(value * getattr(question.weights, name), 4)}
        for name, value in zip(PARTS, hit.scored.parts, strict=True)
    }
    return {**placed, "score": round(hit.scored.score, 4), "parts": parts}


def query_line(item: dict[str, Any]) -> str:
    if "score" not in item:
        return memory_line(item)
    session = f" session={item['session_id']}" if item["session_id"] else ""
    text = "" if item["content"] in ("", item["title"]) else f": {item['content']}"
    versions = [version_line(version) for version in item.get("versions", [])]
    return "\n".join([flat(f"{memory_line(item)}{session} {score_text(item)}{text}"), *versions])


def score_text(item: dict[str, Any]) -> str:
    """Return ``score 7.1 (tags 3.0, scope 1.3, recency .4)``; parts that contribute nothing are left out."""
    parts = [f"{name} {_short(part['points'])}" for name, part in item["parts"].items() if part["points"] >= 0.05]
    return f"score {item['score']:.1f} ({', '.join(parts)})" if parts else f"score {item['score']:.1f}"


def _short(points: float) -> str:
    return f"{points:.1f}".removeprefix("0")
