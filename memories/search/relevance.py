"""How much an entry's best passage is about a question: one scale for stores, lengths and languages (decision 91).

A share of the question's words rewards long texts and punishes short ones, so the words that a passage shares with the
question are compared with the size of both. Weights and measurements are in docs/internals/retrieval.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

from memories.models import SearchDocument
from memories.search.engine import Ranked, documents_of, texts_of
from memories.search.index import has_full_text, text_index
from memories.search.parsed_query import ParsedQuery
from memories.search.snippets import occurrences, passages
from memories.search.text import COMMON_WORDS, date_words, terms
from memoryhub.core import clock
from memoryhub.core.stores.store import StoreId, use_store


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
    best = Relevance(-1.0, 0, 0)
    for start, end, matching in _words_of_passages(text, title, words):
        size = _USUAL * max(_LEAST_PASSAGE, (end - start + len(title)) / _PER_WORD)
        score = sum(weights[word] for word in matching) / sqrt(total * size)
        if score > best.score:
            best = Relevance(score, start, end)
    return best


# Each passage's start and end, and the places of the words that it or the title has
def _words_of_passages(text: str, title: str, words: Sequence[str]) -> Iterator[tuple[int, int, set[int]]]:
    in_title = {word for _, _, word in occurrences(title, words)}
    at = occurrences(text, words)
    for start, end in passages(text) or [(0, 0)]:
        yield start, end, in_title | {word for place, _, word in at if start <= place < end}


def _weights(words: Sequence[str]) -> list[float]:
    documents = SearchDocument.objects.count() + _ASSUMED
    return [_rarity(documents, count) for count in text_index.counts(words, most=_COMMON)]


def _rarity(documents: int, count: int) -> float:
    return log((documents + 1) / (count + 0.5))


# Best hits of a store that may answer a question
ANSWERS = 10
# Share of the question's words, by weight, from which a passage answers it
_ANSWER = 0.53


def is_absent(rankings: Iterable[tuple[StoreId, Ranked]]) -> bool:
    """Return whether none of the best hits is about the question, given its ranking in each store.

    Without a full-text index, any hit is taken to be about it.
    """
    for store, ranked in rankings:
        with use_store(store):
            if _has_answer(ranked):
                return False
    return True


def _has_answer(ranked: Ranked) -> bool:
    ids = [hit for hit, _ in ranked.hits[:ANSWERS]]
    if not ids or ranked.mode == "basic":
        return bool(ids)
    documents = documents_of(ids)
    if COMMON_WORDS.issuperset(ranked.terms):
        return any(tuple(terms(document["title"])) == ranked.terms for document in documents.values())
    weights = _weights(ranked.terms)
    near = ranked.near or {}
    texts = texts_of(documents)
    in_passages: dict[int, list[set[int]]] = {}

    def is_answer(hit: int, words: set[int]) -> bool:
        share = sum(weights[word] for word in words) / sum(weights)
        return share + 2.0 * max(near.get(hit, 0.0) - 0.3, 0.0) >= _ANSWER

    for hit in ids:
        title = f"{documents[hit]['title']} {date_words(clock.from_text(documents[hit]['created_at']))}"
        in_passages[hit] = [words for _, _, words in _words_of_passages(texts.get(hit, ""), title, ranked.terms)]
        if any(is_answer(hit, words) for words in in_passages[hit]):
            return True
    # Words that the index has of an entry but its text does not, such as tags and rejected alternatives
    for hit, word in text_index.matches(ranked.terms, ids):
        if word not in set().union(*in_passages[hit]):
            in_passages[hit] = [words | {word} for words in in_passages[hit]]
    return any(is_answer(hit, words) for hit in ids for words in in_passages[hit])
