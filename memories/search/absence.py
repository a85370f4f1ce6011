"""Whether nothing stored is about a question, so that the answer can say so.

A search always has a best hit. A hit is about the question if one of its passages has a large enough share of the
question's words, weighted by rarity; nearness in meaning counts, too. The figures are in docs/internals/retrieval.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import log

from memories.search.engine import Ranked, documents_of, texts_of
from memories.search.index import text_index
from memories.search.snippets import occurrences, passages
from memories.search.text import COMMON_WORDS, date_words, folded, terms
from memoryhub.core import clock
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId, use_store

# Best hits of a store that may answer a question, and how many of their texts are read first
ANSWERS = 10
_FIRST = 3
# Share of the question's words that a passage needs, by words alone and with meaning. The nearest hit's cosine lowers
# it, and the number of words: the more there are, the more of them a text may put in other words.
_LEAST, _LEAST_WITH_MEANING = 0.7, 1.15
_PER_COSINE, _PER_LOG_OF_WORDS = 1.3, 0.2
# In a larger store, more entries have some of the words by chance
_PER_LOG_OF_DOCUMENTS, _FEW_DOCUMENTS = 0.05, 250
# A passage with all words is always about the question
_ALL = 0.99
# Documents without any of the words that are assumed beside those of the store: rarity says little in a small one
_ASSUMED = 50
# A word in more documents counts as if it were in so many
_COMMON = 2_000
# A path, a dotted or snake_case name, or a number of three digits. It is enough if few entries have it
_EXACT = re.compile(r"(?=.{5})[^\W_]+(?:[._/:\\]{1,2}[^\W_]+)+|\b\d{3,}\b")
_PART = re.compile(r"[^\W_]+")
_FEW, _MOST_EXACT = 3, 4


def is_absent(question: str, rankings: Iterable[tuple[StoreId, Ranked]]) -> bool:
    """Return whether nothing stored is about a question, given its ranking in each store.

    Without a full-text index, any hit is taken to be about it.
    """
    for store, ranked in rankings:
        with use_store(store):
            if _has_answer(question, ranked):
                return False
    return True


def _has_answer(question: str, ranked: Ranked) -> bool:
    ids = [hit for hit, _ in ranked.hits[:ANSWERS]]
    if not ids or ranked.mode == "basic":
        return bool(ids)
    words = ranked.terms
    if COMMON_WORDS.issuperset(words):
        return any(tuple(terms(document["title"])) == words for document in documents_of(ids).values())
    documents = rows.fetch("SELECT count(*) FROM memories_searchdocument")[0][0] + _ASSUMED
    weights = [log((documents + 1) / (count + 0.5)) for count in text_index.counts(words, most=_COMMON)]
    least = _least_share(ranked, documents) * sum(weights)
    in_passages: dict[int, list[set[int]]] = {}
    for hit, matching in _words_by_hit(ids, words):
        in_passages[hit] = matching
        if any(sum(weights[word] for word in places) >= least for places in matching):
            return True
    # Words that the index has of an entry but its text does not, such as tags and rejected alternatives
    further: dict[int, set[int]] = {}
    for hit, word in text_index.matches(words, ids):
        if word not in set().union(*in_passages[hit]):
            further.setdefault(hit, set()).add(word)
    for hit, elsewhere in further.items():
        if any(sum(weights[word] for word in places | elsewhere) >= least for places in in_passages[hit]):
            return True
    return _has_exact(question, ids)


# By weight
def _least_share(ranked: Ranked, documents: int) -> float:
    least = _LEAST
    if ranked.near is not None:
        nearest = max(ranked.near.get(hit, 0.0) for hit, _ in ranked.hits[:ANSWERS])
        least = _LEAST_WITH_MEANING - _PER_COSINE * nearest
    least -= _PER_LOG_OF_WORDS * log(len(ranked.terms) + 1)
    least += _PER_LOG_OF_DOCUMENTS * log(documents / _FEW_DOCUMENTS)
    return min(least, _ALL)


# Each hit with the places of the words that its passages have, with those of its title and its date
def _words_by_hit(ids: Sequence[int], words: Sequence[str]) -> Iterator[tuple[int, list[set[int]]]]:
    for batch in filter(None, (ids[:_FIRST], ids[_FIRST:])):
        documents = documents_of(batch)
        texts = texts_of(documents)
        for hit in batch:
            head = f"{documents[hit]['title']} {date_words(clock.from_text(documents[hit]['created_at']))}"
            text = texts.get(hit, "")
            in_head = {place for _, _, place in occurrences(head, words)}
            in_text = occurrences(text, words)
            matching: list[set[int]] = []
            for start, end in passages(text) or [(0, 0)]:
                matching.append(in_head | {place for begin, _, place in in_text if start <= begin < end})
            yield hit, matching


def _has_exact(question: str, ids: Sequence[int]) -> bool:
    names = [" ".join(_PART.findall(name)) for name in _EXACT.findall(folded(question).lower())[:_MOST_EXACT]]
    rare = [name for name in names if text_index.count(name, most=_FEW + 1) <= _FEW]
    return bool(rare and text_index.matches(rare, ids))
