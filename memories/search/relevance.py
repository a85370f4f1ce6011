"""How much an entry is about a question, by its best passage, and whether nothing stored is (decision 91).

The score of bm25 orders the answers to one question. The relevance of an entry can be compared with a threshold, for
stores and texts of any size. It is a logistic function of a few figures: the rarity of the words that the question and
the passage share, beside the size of both; the share of the question's words that the store has at all; and the cosine,
if meaning answers, or else, for entries, their adjacent words and the share of the title. Whether anything is about a
question depends on the share of its words in a passage of the best hits. How the figures were chosen is in
docs/internals/retrieval.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import exp, log, sqrt

from memories.search.engine import Ranked, documents_of, texts_of
from memories.search.index import UNTITLED, document_count, has_full_text, text_index
from memories.search.parsed_query import ParsedQuery
from memories.search.snippets import UNLISTED, occurrences, passages, place_in_english, sentences, stem, words_between
from memories.search.text import COMMON_WORDS, UNSPACED, all_forms, date_words, folded, forms_of, term, terms
from memoryhub.core import clock
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId, use_store


@dataclass(frozen=True, slots=True)
class Relevance:
    # 0 to 1
    score: float
    # The best passage, as a slice of the text that ``engine.texts_of`` returns: from the sentence with the words on
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Coefficients:
    known: float
    constant: float
    # The shared words by their rarity in the store, and by their rarity in the store and in English
    shared: float = 0.0
    unusual: float = 0.0
    pairs: float = 0.0
    title: float = 0.0
    near: float = 0.0


# The constants put the operating point at the default of ``recall_threshold``
_BY_WORDS = _Coefficients(known=3.4, constant=-5.2, shared=24.8)
_BY_MEANING = _Coefficients(known=0.6, constant=-6.2, shared=26.6, near=9.1)
# Where titles say what a text is about
_TITLED_BY_WORDS = _Coefficients(known=1.0, constant=-5.0, unusual=45.7, pairs=1.0, title=3.1)
# Documents without any of the words that are assumed beside those of the store: rarity says little in a small one
_ASSUMED = 50
# A word in more documents counts as if it were in so many
_COMMON = 5_000
# In a store of that size, a word that a third of the documents have is worth nothing
_LEAST_STORE = 20
# Weight of a question, in words that no document has, from which it grows with the square root only: a long one is
# about more than one thing
_LONG = 6
# A question without any word that counts is no smaller than this
_LEAST_SIZE = 0.05
# Pairs of adjacent words that count, the characters between two such, and words of the shortest title
_PAIRS, _BETWEEN, _SHORTEST_TITLE = 3, 3, 3
# Place in the vocabulary of English at which a word would count nothing
_EVERYDAY = 300
# One word alone is enough if it is none of the most usual English ones, or else beside a cosine; a text that has fewer
# words of the question is rated no higher than this
_LEAST_WORDS, _USUAL, _NEAR, _ALONE = 2, 22_000, 0.45, 0.3
# Characters per word of a passage, and words of the shortest one that is compared by its length
_PER_WORD, _SHORTEST = 12, 8
# Characters of a text that are read, and of a passage that a line of a context pack shows
_READ, _SHOWN = 40_000, 240


@dataclass(frozen=True, slots=True)
class _Question:
    words: Sequence[str]
    # 1 for a word that no document has, 0 for one in every other document
    weights: Sequence[float]
    known: float
    # The weights, lower for words that are usual in English
    unusual: Sequence[float]
    # Places of words that follow each other
    pairs: frozenset[tuple[int, int]]
    # Whether each is a name or a term, rather than a word that is in any text
    are_names: Sequence[bool]

    def weight_of(self, places: Collection[int]) -> float:
        return sum(self.weights[place] for place in places)


def _share(weights: Sequence[float], passage: _Passage) -> float:
    total = sum(weights)
    size = total if total < _LONG else sqrt(total * _LONG)
    shared = sum(weights[place] for place in passage.words)
    scale: float = max(size, _LEAST_SIZE) ** 0.75
    return shared / (sqrt(passage.size) * scale)


def relevance_of(
    query: ParsedQuery,
    ids: Sequence[int],
    near: Mapping[int, float] | None = None,
    *,
    have_titles: bool = False,
) -> dict[int, Relevance]:
    """Map documents of the current store to how much they are about a question; empty without a full-text index.

    Args:
        query: the parsed question.
        ids: the documents, such as the best hits of ``engine.rank``.
        near: their cosines, as in ``Ranked.cosines``; None to go by words alone.
        have_titles: whether they are memories and decisions, whose titles say what they are about; by words alone.
    """
    if not ids or not query.terms or not has_full_text():
        return {}
    by = _TITLED_BY_WORDS if have_titles else _BY_WORDS
    if near is not None:
        by = _BY_MEANING
    question = _question(query)
    indexed: dict[int, set[int]] = {}
    for document, place in text_index.matches(question.words, ids):
        indexed.setdefault(document, set()).add(place)
    documents = documents_of(ids)
    texts = texts_of(documents)
    relevances: dict[int, Relevance] = {}
    for document, row in documents.items():
        title = "" if row["source"] in UNTITLED else row["title"]
        best = _best_passage(texts.get(document, ""), title, question, indexed.get(document, set()))
        cosine = near.get(document, 0.0) if near else 0.0
        relevances[document] = Relevance(_score(question, best, cosine, by), best.start, best.end)
    return relevances


def odds(score: float) -> float:
    """Return how much more likely than not a relevance is."""
    return score / max(1 - score, 1e-9)


def _score(question: _Question, passage: _Passage, cosine: float, by: _Coefficients) -> float:
    evidence = by.constant + by.known * question.known + by.near * cosine
    evidence += by.shared * _share(question.weights, passage) + by.unusual * _share(question.unusual, passage)
    evidence += by.pairs * min(passage.pairs, _PAIRS) + by.title * passage.title
    score = 1 / (1 + exp(-evidence))
    telling = [place for place in passage.words if question.weights[place]]
    has_name = any(question.are_names[place] for place in telling)
    if len(telling) < _LEAST_WORDS and not has_name and cosine < _NEAR:
        return min(score, _ALONE)
    return score


def _question(query: ParsedQuery) -> _Question:
    words = list(_distinct(query.terms))
    documents, counts = _counts(words)
    rarest = _rarity(documents, 0)
    weights: list[float] = []
    for count in counts:
        is_everywhere = documents >= _LEAST_STORE + _ASSUMED and 3 * count > documents - _ASSUMED
        weights.append(0.0 if is_everywhere else max(0.0, _rarity(documents, count)) / rarest)
    unusual: list[float] = []
    for word, weight in zip(words, weights, strict=True):
        unusual.append(weight * log(place_in_english(word) / _EVERYDAY) / log(UNLISTED / _EVERYDAY))
    pairs = frozenset((first, second) for (_, _, first), (_, _, second) in pairwise(occurrences(query.text, words)))
    share = sum(map(bool, counts)) / len(counts)
    return _Question(words, weights, share, unusual, pairs, list(map(_is_name, words)))


def _is_name(word: str) -> bool:
    if not word.isalpha():
        return not word.isdecimal()
    # A word of another language than English has forms
    if forms_of(word) or UNSPACED.match(word):
        return False
    return place_in_english(word) > _USUAL


# Forms of one word count once
def _distinct(words: Sequence[str]) -> Iterator[str]:
    by_stem: dict[str, list[str]] = {}
    for word in words:
        by_stem.setdefault(stem(word), []).append(word)
    for first, *variants in by_stem.values():
        yield term(first, all_forms(variants))


_Occurrences = Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class _Passage:
    # Sum of its words' weights, for its length
    weight: float
    words: Collection[int]
    # In words
    size: float
    start: int
    end: int
    # Pairs of words that follow each other as in the question, and share of the title's words that the question has
    pairs: int = 0
    title: float = 0.0


def _best_passage(text: str, title: str, question: _Question, indexed: set[int]) -> _Passage:
    # The index knows all forms of a word, and has no other words
    at = occurrences(text[:_READ], question.words)
    in_title = occurrences(title, question.words)
    anywhere = {word for _, _, word in in_title}
    titled = len(anywhere) / max(_SHORTEST_TITLE, len(set(map(stem, terms(title)))))
    # Those that the entry has in its tags and attributes count everywhere, as those of the title
    if len(text) <= _READ:
        anywhere |= indexed - {word for _, _, word in at}
    best = _Passage(-1.0, (), 1.0, 0, 0)
    for start, end in passages(text[:_READ]) or [(0, 0)]:
        words = (words_between(at, start, end) | anywhere) & indexed
        size = max(_SHORTEST, (end - start + len(title)) / _PER_WORD)
        weight = question.weight_of(words) / sqrt(size)
        if weight > best.weight:
            best = _Passage(weight, words, size, start, end)
    adjacent = _adjacent(in_title) | _adjacent([item for item in at if best.start <= item[0] < best.end])
    pairs = len(adjacent & question.pairs)
    return replace(best, start=_first_shown(text, best, question, at), pairs=pairs, title=titled)


def _adjacent(at: _Occurrences) -> set[tuple[int, int]]:
    pairs: set[tuple[int, int]] = set()
    for (_, end, first), (start, _, second) in pairwise(at):
        if first != second and start - end <= _BETWEEN:
            pairs.add((first, second))
    return pairs


# The sentence of a passage from which a line shows most of the words
def _first_shown(text: str, passage: _Passage, question: _Question, at: _Occurrences) -> int:
    if passage.end - passage.start <= _SHOWN:
        return passage.start
    starts = [start for start, _ in sentences(text, passage.start, passage.end)]
    return max(starts, key=lambda start: question.weight_of(words_between(at, start, start + _SHOWN)))


# Documents, with the assumed ones, and how many have each word
def _counts(words: Sequence[str]) -> tuple[int, list[int]]:
    documents, counts = rows.together(document_count(), text_index.counts(words, most=_COMMON))
    return documents + _ASSUMED, counts


def _rarity(documents: int, count: int) -> float:
    return log((documents + 1) / (count + 0.5))


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
    in_passages = dict(_words_by_hit(ids[:_FIRST], words, ranked))
    # Enough, however rare each word is: counting takes long in a large store
    if any(len(places) == len(words) for matching in in_passages.values() for places in matching):
        return True
    documents, counts = _counts(words)
    weights = [_rarity(documents, count) for count in counts]
    least = _least_share(ranked, documents) * sum(weights)
    for hit, matching in chain(list(in_passages.items()), _words_by_hit(ids[_FIRST:], words, ranked)):
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
def _words_by_hit(ids: Sequence[int], words: Sequence[str], ranked: Ranked) -> Iterator[tuple[int, list[set[int]]]]:
    documents, texts = ranked.documents, ranked.texts
    if not documents.keys() >= set(ids):
        documents = documents_of(ids)
        texts = texts_of(documents)
    for hit in ids:
        head = f"{documents[hit]['title']} {date_words(clock.from_text(documents[hit]['created_at']))}"
        text = texts.get(hit, "")[:_READ]
        in_head = {place for _, _, place in occurrences(head, words)}
        in_text = occurrences(text, words)
        matching: list[set[int]] = []
        for start, end in passages(text) or [(0, 0)]:
            matching.append(in_head | words_between(in_text, start, end))
        yield hit, matching


def _has_exact(question: str, ids: Sequence[int]) -> bool:
    names = [" ".join(_PART.findall(name)) for name in _EXACT.findall(folded(question).lower())[:_MOST_EXACT]]
    if not names:
        return False
    counts = rows.finish(text_index.counts(names, most=_FEW + 1))
    rare = [name for name, count in zip(names, counts, strict=True) if count <= _FEW]
    return bool(rare and text_index.matches(rare, ids))
