"""How much an entry is about a question, by its best passage: one scale for stores and lengths of text (decision 91).

The score of bm25 orders the answers to one question; this one can be compared with a threshold. It is a logistic
function of three figures: the rarity of the words that the question and the passage share, beside the size of both; the
share of the question's words that the store has at all; and the cosine, if meaning answers. The coefficients and how
they were fitted are in docs/internals/retrieval.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log, sqrt

from memories.embeddings.engine import BUNDLED_VOCABULARY
from memories.models import SearchDocument
from memories.search.engine import documents_of, texts_of
from memories.search.index import UNTITLED, has_full_text, text_index
from memories.search.parsed_query import ParsedQuery
from memories.search.snippets import occurrences, passages, sentences, stem
from memories.search.text import UNSPACED, all_forms, forms_of, term


@dataclass(frozen=True, slots=True)
class Relevance:
    # 0 to 1
    score: float
    # The best passage, as a slice of the text that ``engine.texts_of`` returns: from the sentence with the words on
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Coefficients:
    shared: float
    known: float
    near: float
    constant: float


# The constants put the operating point of both at the default of ``recall_threshold``
_BY_WORDS = _Coefficients(shared=24.8, known=3.4, near=0.0, constant=-5.2)
_BY_MEANING = _Coefficients(shared=26.6, known=0.6, near=9.1, constant=-6.2)
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

    # Whether each is a name or a term, rather than a word that is in any text
    are_names: Sequence[bool]

    def weight_of(self, places: Collection[int]) -> float:
        return sum(self.weights[place] for place in places)

    @property
    def size(self) -> float:
        total = sum(self.weights)
        return total if total < _LONG else sqrt(total * _LONG)


def relevance_of(
    query: ParsedQuery, ids: Sequence[int], near: Mapping[int, float] | None = None
) -> dict[int, Relevance]:
    """Map documents of the current store to how much they are about a question; empty without a full-text index.

    Args:
        query: the parsed question.
        ids: the documents, such as the best hits of ``engine.rank``.
        near: their cosines, as in ``Ranked.cosines``; None to go by words alone.
    """
    if not ids or not query.terms or not has_full_text():
        return {}
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
        cosine = None if near is None else near.get(document, 0.0)
        relevances[document] = Relevance(_score(question, best, cosine), best.start, best.end)
    return relevances


def odds(score: float) -> float:
    """Return how much more likely than not a relevance is."""
    return score / max(1 - score, 1e-9)


def _score(question: _Question, passage: _Passage, cosine: float | None) -> float:
    by = _BY_WORDS if cosine is None else _BY_MEANING
    shared = passage.weight / max(question.size, _LEAST_SIZE) ** 0.75
    score = 1 / (1 + exp(-(by.shared * shared + by.known * question.known + by.near * (cosine or 0.0) + by.constant)))
    telling = [place for place in passage.words if question.weights[place]]
    has_name = any(question.are_names[place] for place in telling)
    if len(telling) < _LEAST_WORDS and not has_name and (cosine or 0.0) < _NEAR:
        return min(score, _ALONE)
    return score


def _question(query: ParsedQuery) -> _Question:
    words = list(_distinct(query.terms))
    documents = SearchDocument.objects.count()
    counts = text_index.counts(words, most=_COMMON)
    rarest = _rarity(documents, 0)
    weights: list[float] = []
    for count in counts:
        is_everywhere = documents >= _LEAST_STORE and 3 * count > documents
        weights.append(0.0 if is_everywhere else max(0.0, _rarity(documents, count)) / rarest)
    return _Question(words, weights, sum(map(bool, counts)) / len(counts), list(map(_is_name, words)))


def _is_name(word: str) -> bool:
    if not word.isalpha():
        return not word.isdecimal()
    # A word of another language than English has forms
    if forms_of(word) or UNSPACED.match(word):
        return False
    return _usual_words().isdisjoint((word, stem(word), f"{stem(word)}e"))


# The vocabulary of the bundled model is in the order of how often its words are used
@cache
def _usual_words() -> frozenset[str]:
    return frozenset(BUNDLED_VOCABULARY.read_text("utf-8").split("\n")[:_USUAL])


# Forms of one word count once
def _distinct(words: Sequence[str]) -> Iterator[str]:
    by_stem: dict[str, list[str]] = {}
    for word in words:
        by_stem.setdefault(stem(word), []).append(word)
    for first, *variants in by_stem.values():
        yield term(first, all_forms(variants))


@dataclass(frozen=True, slots=True)
class _Passage:
    # Sum of its words' weights, for its length
    weight: float
    words: Collection[int]
    start: int
    end: int


def _best_passage(text: str, title: str, question: _Question, indexed: set[int]) -> _Passage:
    # The index knows all forms of a word, and has no other words
    at = occurrences(text[:_READ], question.words)
    anywhere = {word for _, _, word in occurrences(title, question.words)}
    # Those that the entry has in its tags and attributes count everywhere, as those of the title
    if len(text) <= _READ:
        anywhere |= indexed - {word for _, _, word in at}
    best = _Passage(-1.0, (), 0, 0)
    for start, end in passages(text[:_READ]) or [(0, 0)]:
        words = (_between(at, start, end) | anywhere) & indexed
        size = max(_SHORTEST, (end - start + len(title)) / _PER_WORD)
        weight = question.weight_of(words) / sqrt(size)
        if weight > best.weight:
            best = _Passage(weight, words, start, end)
    return replace(best, start=_first_shown(text, best, question, at))


_Occurrences = Sequence[tuple[int, int, int]]


def _between(at: _Occurrences, start: int, end: int) -> set[int]:
    return {word for place, _, word in at if start <= place < end}


# The sentence of a passage from which a line shows most of the words
def _first_shown(text: str, passage: _Passage, question: _Question, at: _Occurrences) -> int:
    if passage.end - passage.start <= _SHOWN:
        return passage.start
    starts = [start for start, _ in sentences(text, passage.start, passage.end)]
    return max(starts, key=lambda start: question.weight_of(_between(at, start, start + _SHOWN)))


def _rarity(documents: int, count: int) -> float:
    return log((documents + _ASSUMED + 1) / (count + 0.5))
