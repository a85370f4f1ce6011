"""Recall: the few entries that a prompt is about, given with the prompt and once in a session (decision 45)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from math import log, sqrt

from memories.embeddings.meaning import MEANING
from memories.models import RECALL, ContextPack
from memories.pack.sections import (
    FilledSection,
    GatherRequest,
    PackBody,
    PackItem,
    SectionDefinition,
    recallable_sources,
    reference,
    within,
    without_repeated_texts,
)
from memories.scopes import Level
from memories.search import engine
from memories.search.index import has_full_text, text_index
from memories.search.parsed_query import ParsedQuery, one_of
from memories.search.weights import SAYS_LITTLE
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import use_store

MOST = 3
MAX_TOKENS = 250
# Tokens of header and footer
_FRAME_TOKENS = 60
_SECTION = SectionDefinition(RECALL, "About this prompt", 0, 1.0, 300, lambda _: (), "memory_search")


def recall_body(request: GatherRequest, least: float) -> PackBody:
    """Return the entries whose share of the prompt is at least ``least``, without those that the session was given."""
    given = _given_to(request.session_id)
    found: list[tuple[float, PackItem]] = []
    for level in request.chain:
        with use_store(level.store):
            shares = relevant_entries(
                request.query, sources=recallable_sources(), level=level, least=least, without=ids_at(level, given)
            )
        hidden = request.hidden(level, shares)
        with use_store(level.store):
            items = _items(level, [entry for entry in shares if entry not in hidden], request.now)
        found += [(share, items[entry]) for entry, share in shares.items() if entry in items]
    ranked = [item for _, item in sorted(found, key=lambda scored: (-scored[0], _order(scored[1])))]
    best = without_repeated_texts(ranked, _given_texts(request, given) if ranked else ())[:MOST]
    return _body(best, len(best))


def _given_texts(request: GatherRequest, given: Collection[str]) -> set[str]:
    texts: set[str] = set()
    for level in request.chain:
        with use_store(level.store):
            texts |= {item.text for item in _items(level, ids_at(level, given), request.now).values()}
    return texts


def recalled_body(request: GatherRequest, marks: Collection[str]) -> PackBody:
    """Return what was given before, by the keys of its marks; what was erased since is left out."""
    references = _references([marks])
    found: list[PackItem] = []
    for level in request.chain:
        with use_store(level.store):
            found += _items(level, ids_at(level, references), request.now).values()
    return _body(found, len(marks))


# The text of an item depends on how many were given, not on their lengths, so that a replay is the same after one of
# them was erased
def _body(items: Sequence[PackItem], count: int) -> PackBody:
    if not items:
        return PackBody([])
    tokens = (MAX_TOKENS - _FRAME_TOKENS) // count
    cut = [within(item, tokens) for item in sorted(items, key=_order)]
    return PackBody([FilledSection(_SECTION, cut, 0, sum(estimate_tokens(item.line) for item in cut))])


# Latest first; the marks of a pack do not keep an order
def _order(item: PackItem) -> tuple[str, int]:
    scope, _, entry = item.reference.partition("#")
    return scope, -int(entry)


def _items(level: Level, ids: Iterable[int], now: datetime) -> dict[int, PackItem]:
    wanted = list(ids)
    sources = recallable_sources().values() if wanted else ()
    return dict(chain.from_iterable(items(level, wanted, now).items() for items in sources))


# What any pack of the session contained
def _given_to(session_id: str) -> set[str]:
    packs = ContextPack.objects.filter(session_id=session_id) if session_id else ContextPack.objects.none()
    return _references(packs.values_list("marks", flat=True))


def _references(packs: Iterable[Collection[str]]) -> set[str]:
    return {key.rpartition(" ")[2] for marks in packs for key in marks}


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
    ranked = engine.rank(replace(prompt, filters=(one_of("d.source", list(sources)),)), level=level, others=True)
    empty = {hit for hit, factors in ranked.factors.items() if SAYS_LITTLE in factors}
    candidates = [hit for hit, _ in ranked.hits if hit not in without and hit not in empty][:_CANDIDATES]
    near = ranked.scores.get(MEANING, {})
    shares = _shares(prompt.terms, candidates) if candidates else {}
    found = {hit: shares.get(hit, 0) + _BY_MEANING * max(0, near.get(hit, 0) - _NEAR) for hit in candidates}
    return {hit: relevance for hit, relevance in found.items() if relevance >= least}


def _shares(words: Sequence[str], hits: Sequence[int]) -> dict[int, float]:
    documents = rows.fetch("SELECT count(*) FROM memories_searchdocument")[0][0] + _ASSUMED
    unknown = _weight(documents, 0)
    weights = [_weight(documents, count) for count in text_index.counts(words, most=_COMMON)]
    whole, long = sum(weights), _LONG * unknown
    whole = whole if whole <= long else sqrt(whole * long)
    found: dict[int, list[float]] = {}
    for hit, word in text_index.matches(words, hits):
        found.setdefault(hit, []).append(weights[word])
    return {hit: sum(matched) / whole for hit, matched in found.items() if len(matched) >= _LEAST_WORDS}


def _weight(documents: int, count: int) -> float:
    return log((documents + 1) / (count + 0.5))
