"""Asking every scope that holds here, the nearest first, and merging what they answer."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memories.query import names
from memories.query.candidates import Candidates, Scored, can_have
from memories.query.cursor import Asked
from memories.query.places import Place
from memories.schemas.query import QueryOrder
from memories.search.mode import by_index
from memoryhub.core.stores import use_store


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
