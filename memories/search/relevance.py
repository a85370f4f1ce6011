"""How much an entry's best passage is about a question: one scale for stores, lengths and languages (decision 91).

A share of the question's words rewards long texts and punishes short ones, so the words that a passage shares with the
question are compared with the size of both. Weights and measurements are in docs/internals/retrieval.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

from memories.models import SearchDocument
from memories.search.engine import documents_of, texts_of
from memories.search.index import has_full_text, text_index
from memories.search.parsed_query import ParsedQuery
from memories.search.snippets import occurrences, passages


@dataclass(frozen=True, slots=True)
class Relevance:
    # 0 to 1
    score: float
    # The best passage: a slice of the text that ``engine.texts_of`` returns
    start: int
    end: int


# Documents without any of the words that are assumed beside those of the store: rarity says little in a small one
_ASSUMED = 50
# A word in more documents counts as if it were in so many
_COMMON = 5_000
# Characters of a passage for each word that counts, and the weight of such a word on average
_PER_WORD = 12
_USUAL = 3.0
_LEAST_PASSAGE = 8
# Weight of a question, in unknown words, from which it grows with the square root only
_LONG = 6
# Cosine from which meaning adds to the score, and how much
_NEAR = 0.4
_BY_MEANING = 1.5


def relevance_of(
    query: ParsedQuery, ids: Sequence[int], near: Mapping[int, float] | None = None
) -> dict[int, Relevance]:
    """Map documents of the current store to how much they are about a question; empty without a full-text index.

    Args:
        query: the parsed question.
        ids: the documents, such as the best hits of ``engine.rank``.
        near: their cosines, as in ``Ranked.near``; None to go by words alone.
    """
    if not ids or not query.terms or not has_full_text():
        return {}
    documents = documents_of(ids)
    texts = texts_of(documents)
    weights = _weights(query.terms)
    total = sum(weights)
    long = _LONG * _rarity(_ASSUMED, 0)
    if total > long:
        total = sqrt(total * long)
    relevances: dict[int, Relevance] = {}
    for document, row in documents.items():
        text = texts.get(document, "")
        best = _best_passage(text, row["title"], query.terms, weights, total)
        by_meaning = _BY_MEANING * max(0.0, (near or {}).get(document, 0.0) - _NEAR)
        relevances[document] = Relevance(min(1.0, best.score + by_meaning), best.start, best.end)
    return relevances


def _best_passage(text: str, title: str, words: Sequence[str], weights: Sequence[float], total: float) -> Relevance:
    in_title = {word for _, _, word in occurrences(title, words)}
    best = Relevance(-1.0, 0, 0)
    at = occurrences(text, words)
    for start, end in passages(text) or [(0, 0)]:
        matching = in_title | {word for place, _, word in at if start <= place < end}
        size = _USUAL * max(_LEAST_PASSAGE, (end - start + len(title)) / _PER_WORD)
        score = sum(weights[word] for word in matching) / sqrt(total * size)
        if score > best.score:
            best = Relevance(score, start, end)
    return best


def _weights(words: Sequence[str]) -> list[float]:
    documents = SearchDocument.objects.count() + _ASSUMED
    return [_rarity(documents, count) for count in text_index.counts(words, most=_COMMON)]


def _rarity(documents: int, count: int) -> float:
    return log((documents + 1) / (count + 0.5))
