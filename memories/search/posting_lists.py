"""Read what the full-text index in PostgreSQL has of some words, in one statement (decision 76)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, compress
from math import log
from typing import Any, TypeVar

from memories.search.posting_merge import COLUMNS, SHAPES, Counts, Packed, Places, counts_of, places_in, unpacked
from memories.search.unicode61 import tokens
from memoryhub.core.stores import rows

Value = TypeVar("Value")
# The text of a phrase, and whether its last word is the beginning of one
Form = tuple[str, bool]

_POSTINGS = "SELECT 0, p.word, p.first, p.last, p.n, p.codes, {data}, NULL::text FROM search_postings p WHERE {named}"
_NUMBERS = (
    "SELECT 0, p.word, 0, 0, CAST(sum(p.n) AS bigint), '', ''::bytea, ''::bytea, ''::bytea, ''::bytea, NULL::text "
    "FROM search_postings p WHERE {named} GROUP BY p.word"
)
_NEAR_IDS = " AND EXISTS (SELECT 1 FROM unnest(%s::bigint[]) AS i WHERE i BETWEEN p.first AND p.last)"
# Documents that wait to be merged and have the words, or whose older words the postings still have
_WAITING = (
    " UNION ALL SELECT 1, t.merged, t.id, 0, t.length, NULL, NULL, NULL, NULL, NULL, (SELECT CAST({found} AS text) "
    "FROM {words} WHERE {named}) FROM search_waiting t WHERE t.batch = (SELECT batch FROM search_totals)"
)
_FRESH = (
    _WAITING.format(
        found="jsonb_object_agg(word, t.fresh -> word)", words="unnest(%s::text[]) AS word", named="t.fresh ? word"
    )
    + " AND (t.merged IS NOT NULL OR t.fresh ?| %s::text[])"
)
_FRESH_BEGINNINGS = _WAITING.format(
    found="jsonb_object_agg(p.word, p.places)", words="jsonb_each(t.fresh) AS p (word, places)", named="{named}"
)
_TOTALS = (
    " UNION ALL SELECT 2, NULL, CAST(s.documents + t.puts AS bigint), 0, CAST(s.words + t.words AS bigint), NULL, "
    "NULL, NULL, NULL, NULL, NULL FROM search_totals s, (SELECT coalesce(sum(puts), 0) AS puts, "
    "coalesce(sum(put_words), 0) AS words FROM search_waiting WHERE batch = (SELECT batch FROM search_totals)) AS t"
)


@rows.InSteps
def read(
    forms: Iterable[Form], *, ids: Sequence[int] | None = None, totals: bool = False, numbers: bool = False
) -> rows.Steps[PostingLists]:
    """Return the posting lists of all words of the forms.

    Args:
        forms: phrases.
        ids: read what concerns these documents only.
        totals: read the totals of the index too, which ``idf`` needs.
        numbers: of forms of one word, read the numbers of documents only, for ``hits`` and ``has``.
    """
    exact: set[str] = set()
    beginnings: set[str] = set()
    is_phrase = False
    for text, is_beginning in forms:
        words = _words(text)
        is_phrase |= len(words) > 1
        if is_beginning:
            beginnings.update(words[-1:])
            words = words[:-1]
        exact.update(words)
    condition, parameters = _words_condition(sorted(exact), sorted(beginnings))
    values = [*parameters]
    if numbers and not is_phrase:
        sql = _NUMBERS.format(named=condition)
    else:
        places = "p.places" if is_phrase else "''::bytea"
        sql = _POSTINGS.format(data=f"p.documents, p.shapes, p.lengths, {places}", named=condition)
        if ids is not None:
            sql += _NEAR_IDS
            values.append(list(ids))
    if beginnings:
        sql += _FRESH_BEGINNINGS.format(named=condition)
        values += parameters
    else:
        sql += _FRESH
        values += [sorted(exact), sorted(exact)]
    if totals:
        sql += _TOTALS
    (lines,) = yield [(sql, values)]
    return PostingLists(lines)


@lru_cache(maxsize=1024)
def _words(text: str) -> tuple[str, ...]:
    return tuple(tokens(text))


# Conditions on ``p.word``
def _words_condition(exact: list[str], beginnings: Sequence[str]) -> tuple[str, list[Any]]:
    conditions = ["p.word = ANY(%s::text[])"]
    parameters: list[Any] = [exact]
    for beginning in beginnings:
        conditions.append('p.word COLLATE "C" >= %s AND p.word COLLATE "C" < %s')
        parameters += [beginning, beginning + "\U0010ffff"]
    return f"({' OR '.join(conditions)})", parameters


class PostingLists:
    def __init__(self, lines: Iterable[Sequence[Any]]) -> None:
        self.documents = self.words = 0
        self._rows: dict[str, list[Packed]] = {}
        # Length and places by word of the documents that wait, and the words of their older postings
        self._fresh: dict[int, tuple[int, dict[str, Places]]] = {}
        self._older: dict[int, frozenset[str]] = {}
        for kind, word, first, last, number, codes, documents, shapes, lengths, places, fresh in lines:
            if kind == 0:
                row = Packed(first, last, number, codes, documents, shapes, lengths, places)
                self._rows.setdefault(word, []).append(row)
            elif kind == 1:
                self._fresh[first] = (number or 0, json.loads(fresh) if fresh else {})
                if word is not None:
                    self._older[first] = frozenset(word.split())
            else:
                self.documents, self.words = first, number
        self._vocabulary = set(self._rows).union(*(words for _, words in self._fresh.values()))

    def idf(self, form: Form, *, least: float) -> float:
        hits = self.hits(form)
        idf = log((self.documents - hits + 0.5) / (hits + 0.5))
        return idf if idf > 0 else least

    def hits(self, form: Form) -> int:
        """Return the number of documents with a form."""
        words = self._words_of(form)
        if len(words) != 1 or form[1]:
            return len(self.with_form(form))
        return sum(map(self._number, words[0]))

    def has(self, form: Form) -> bool:
        words = self._words_of(form)
        if len(words) != 1:
            return bool(self.with_form(form))
        return any(map(self._number, words[0]))

    def with_form(self, form: Form) -> set[int]:
        if len(self._words_of(form)) > 1:
            return set(self._counts(form))
        return set(self.lengths(form))

    def in_columns(self, form: Form, columns: int) -> set[int]:
        """Return the documents with a form in one of the first ``columns``."""
        return {document for document, counts in self._counts(form).items() if any(counts[:columns])}

    def lengths(self, form: Form) -> dict[int, int]:
        """Map the documents with a form to their lengths."""
        words = self._words_of(form)
        lengths: dict[int, int] = {}
        for word in chain(*words):
            lengths |= self._values(
                word, lambda row: unpacked(row.lengths, row.codes[2]), lambda document, _: self._fresh[document][0]
            )
        if len(words) > 1:
            return {document: lengths[document] for document in self._counts(form)}
        return lengths

    def weighted(self, form: Form, within: Collection[int], weights: Sequence[float]) -> Iterator[tuple[int, float]]:
        """Yield those of some documents that have a form, with the sums of its weights."""
        by_counts: dict[Counts, float] = {}
        for document, counts in self._counts(form, within).items():
            if counts not in by_counts:
                by_counts[counts] = _sum(counts, weights)
            yield document, by_counts[counts]

    # For each word of the phrase, the words of the index that it stands for
    def _words_of(self, form: Form) -> list[list[str]]:
        text, beginning = form
        words = [[word] for word in _words(text)]
        if words and beginning:
            words[-1] = [word for word in self._vocabulary if word.startswith(words[-1][0])]
        return words

    def _number(self, word: str) -> int:
        merged = sum(row.n for row in self._rows.get(word, ()))
        older = sum(word in words for words in self._older.values())
        return merged - older + sum(word in words for _, words in self._fresh.values())

    def _counts(self, form: Form, within: Collection[int] | None = None) -> dict[int, Counts]:
        words = self._words_of(form)
        if len(words) > 1:
            return self._phrase_counts(words, within)
        total: dict[int, Counts] = {}
        for word in chain(*words):
            counts = self._values(word, _counts_in, lambda _, places: counts_of(places), within)
            if not total:
                total = counts
                continue
            for document, more in counts.items():
                before = total.get(document, (0,) * COLUMNS)
                total[document] = tuple(map(sum, zip(before, more, strict=True)))  # type: ignore[assignment]
        return total

    def _phrase_counts(self, words: Sequence[list[str]], within: Collection[int] | None) -> dict[int, Counts]:
        places: list[dict[int, set[int]]] = [{} for _ in words]
        # The rarest words first: the others are looked up in their documents only
        for number in sorted(range(len(words)), key=lambda number: sum(map(self._number, words[number]))):
            for word in words[number]:
                word_places = self._values(word, places_in, lambda _, places: places, within)
                for document, places_of_word in word_places.items():
                    places[number].setdefault(document, set()).update(places_of_word)
            within = places[number].keys()
        counts: dict[int, Counts] = {}
        for document in within or ():
            # Where the phrase begins: every word of it is as far ahead as in the phrase
            begins = set(places[0][document])
            for number, by_document in enumerate(places):
                begins &= {place - COLUMNS * number for place in by_document[document]}
            if begins:
                counts[document] = counts_of(sorted(begins))
        return counts

    # A value for each document with a word: from the postings, and instead of older ones from what waits
    def _values(
        self,
        word: str,
        values_in: Callable[[Packed], Iterable[Value]],
        fresh_value: Callable[[int, Places], Value],
        within: Collection[int] | None = None,
    ) -> dict[int, Value]:
        values: dict[int, Value] = {}
        for row in self._rows.get(word, ()):
            documents = list(map(row.first.__add__, unpacked(row.documents, row.codes[0])))
            pairs = zip(documents, values_in(row), strict=True)
            values.update(pairs if within is None else compress(pairs, map(within.__contains__, documents)))
        for document in self._older:
            values.pop(document, None)
        for document, (_, places_by_word) in self._fresh.items():
            if word in places_by_word and (within is None or document in within):
                values[document] = fresh_value(document, places_by_word[word])
        return values


def _counts_in(row: Packed) -> Iterable[Counts]:
    return map(SHAPES[row.codes[1]].__getitem__, unpacked(row.shapes, row.codes[1]))


# Added one by one as FTS5 does, so that the last digits are the same
def _sum(counts: Counts, weights: Sequence[float]) -> float:
    total = 0.0
    for count, weight in zip(counts, weights, strict=True):
        for _ in range(count):
            total += weight
    return total
