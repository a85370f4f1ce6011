"""Recall: the few entries that a prompt is about, given with the prompt and once in a session (decision 45).

An entry is about a prompt by the share of the prompt's words that it has, and by its meaning. A word weighs
log(documents / documents with it), as in bm25. The score of bm25 itself only orders the answers to one question; the
share can be compared with a threshold. The weights are measured in docs/internals/retrieval.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import chain
from math import log, sqrt

from memories.models import ContextPack, SearchDocument
from memories.pack.sections import (
    FilledSection,
    GatherRequest,
    PackBody,
    PackItem,
    SectionDefinition,
    recallable_sources,
    reference,
)
from memories.pack_sorts import RECALL, RECALL_SECTION, reference_of
from memories.scopes import Level
from memories.search import engine
from memories.search.index import has_full_text, text_index
from memories.search.parsed_query import ParsedQuery
from memories.search.weights import SAYS_LITTLE
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores.store import use_store
from sessions_app.selectors import context_begins

MOST = 3
MAX_TOKENS = 250
SECTION = SectionDefinition(RECALL_SECTION, "About this prompt", 0, 1.0, 300, lambda _: (), "memory_search")


def recall_body(request: GatherRequest, least: float) -> PackBody:
    """Return the entries whose share of the prompt is at least ``least``, without those that the session was given."""
    earlier = set(map(reference_of, chain.from_iterable(_packs_in_context(request.session_id))))
    scored: list[tuple[float, PackItem]] = []
    for level in request.chain:
        with use_store(level.store):
            shares = relevant_entries(
                request.query, sources=recallable_sources(), level=level, least=least, without=ids_at(level, earlier)
            )
        hidden = request.hidden(level, shares)
        with use_store(level.store):
            items = _items_at(level, [entry for entry in shares if entry not in hidden], request.now)
        scored += [(share, items[entry]) for entry, share in shares.items() if entry in items]
    if not scored:
        return PackBody([])
    scored.sort(key=lambda pair: (-pair[0], _latest_first(pair[1])))
    texts = {item.text for item in _items_of(request, earlier)} - {""}
    best: list[PackItem] = []
    for _, item in scored:
        if item.text not in texts and len(best) < MOST:
            best.append(item)
            texts |= {item.text} - {""}
    return _recall_pack(best, len(best))


def _packs_in_context(session_id: str) -> Iterable[Collection[str]]:
    begins = context_begins(session_id)
    return ContextPack.objects.filter(session_id=session_id, id__gt=begins).values_list("marks", flat=True)


def recalled_body(request: GatherRequest, marks: Collection[str]) -> PackBody:
    """Return what was given before, by the keys of its marks; what was erased since is left out."""
    return _recall_pack(_items_of(request, set(map(reference_of, marks))), len(marks))


def _items_of(request: GatherRequest, references: Collection[str]) -> list[PackItem]:
    items: list[PackItem] = []
    for level in request.chain:
        with use_store(level.store):
            items += _items_at(level, ids_at(level, references), request.now).values()
    return items


# The text of an item depends on how many were given, not on their lengths, so that a replay is the same after one of
# them was erased
def _recall_pack(items: Sequence[PackItem], count: int) -> PackBody:
    if not items:
        return PackBody([])
    tokens = (MAX_TOKENS - RECALL.frame_tokens) // count
    cut = [item.within(tokens) for item in sorted(items, key=_latest_first)]
    section = FilledSection(SECTION, cut, 0, sum(estimate_tokens(item.line) for item in cut))
    return PackBody([section], sort=RECALL)


# The marks of a pack do not keep an order
def _latest_first(item: PackItem) -> tuple[str, int]:
    scope, _, entry = item.reference.partition("#")
    return scope, -int(entry)


def _items_at(level: Level, ids: Iterable[int], now: datetime) -> dict[int, PackItem]:
    entries = list(ids)
    items: dict[int, PackItem] = {}
    if entries:
        for items_of_source in recallable_sources().values():
            items |= items_of_source(level, entries, now)
    return items


def ids_at(level: Level, references: Collection[str]) -> set[int]:
    """Return the ids of those references that are to entries of a level."""
    scope = reference(level, 0).partition("#")[0]
    parts = (name.partition("#") for name in references)
    return {int(entry) for name, _, entry in parts if name == scope}


# Best hits that are looked at
_CANDIDATES = 5
# An entry has at least so many of the prompt's words: one alone is in too many prompts
_LEAST_WORDS = 2
# Documents without any of the words that are assumed beside those of the store: rarity says little in a small one
_ASSUMED = 50
# A word in more documents counts as if it were in so many
_COMMON = 5_000
# Weight of a prompt, in unknown words, from which it grows with the square root only: a long prompt has words about
# other things
_LONG = 6
# Cosine from which the meaning adds to the share, and how much
_NEAR = 0.4
_BY_MEANING = 1.5


def relevant_entries(
    prompt: ParsedQuery, *, sources: Collection[str], level: Level, least: float, without: Collection[int] = ()
) -> dict[int, float]:
    """Map the ids of the current store's entries that are about a prompt to their relevance.

    Args:
        prompt: the parsed prompt.
        sources: whose entries.
        level: the visible scopes of the store.
        least: relevance of those entries; 1 for an entry with all words of the prompt.
        without: ids to leave out.
    """
    if len(prompt.terms) < _LEAST_WORDS or not has_full_text():
        return {}
    ranked = engine.rank(prompt.among(list(sources)), level=level, blended=True)
    empty = {hit for hit, factors in ranked.factors.items() if SAYS_LITTLE in factors}
    candidates = [hit for hit, _ in ranked.hits if hit not in without and hit not in empty][:_CANDIDATES]
    if not candidates:
        return {}
    near = ranked.near or {}
    shares = _shares(prompt.terms, candidates)
    relevance = {hit: shares.get(hit, 0) + _BY_MEANING * max(0, near.get(hit, 0) - _NEAR) for hit in candidates}
    return {hit: share for hit, share in relevance.items() if share >= least}


def _shares(words: Sequence[str], hits: Sequence[int]) -> dict[int, float]:
    documents = SearchDocument.objects.count() + _ASSUMED
    weights = [_rarity(documents, count) for count in text_index.counts(words, most=_COMMON)]
    total = sum(weights)
    long = _LONG * _rarity(documents, 0)
    if total > long:
        total = sqrt(total * long)
    matched: dict[int, list[float]] = {}
    for hit, word in text_index.matches(words, hits):
        matched.setdefault(hit, []).append(weights[word])
    return {hit: sum(rarities) / total for hit, rarities in matched.items() if len(rarities) >= _LEAST_WORDS}


def _rarity(documents: int, count: int) -> float:
    return log((documents + 1) / (count + 0.5))
