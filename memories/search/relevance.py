"""Decide whether an entry is about a prompt: by the share of the prompt's words that it has, and by its meaning.

A word weighs log(documents / documents with it), as in bm25. The score of bm25 itself only orders the answers to one
question; the share can be compared with a threshold. The weights are measured in docs/internals/retrieval.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import log, sqrt

from memories.embeddings.meaning import MEANING
from memories.scopes import Level
from memories.search import engine
from memories.search.index import has_full_text
from memories.search.parsed_query import ParsedQuery, one_of
from memories.search.text_index import text_index
from memories.search.weights import SAYS_LITTLE
from memoryhub.core.stores import rows

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
