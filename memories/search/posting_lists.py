"""Read what the full-text index in PostgreSQL has of some words, in one statement (decision 76)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress
from math import log
from typing import Any

from memories.search.posting_merge import COLUMNS, SHAPES, Counts, Packed, Places, counts_of, places_in, unpacked
from memories.search.unicode61 import tokens
from memoryhub.core.stores import rows

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


def read(
    forms: Iterable[Form], *, ids: Sequence[int] | None = None, totals: bool = False, numbers: bool = False
) -> PostingLists:
    """Return the posting lists of all words of the forms.

    Args:
        forms: phrases.
        ids: read what concerns these documents only.
        totals: read the totals of the index too, which ``idf`` needs.
        numbers: of forms of one word, read the numbers of documents only, for ``hits`` and ``has``.
    """
    wanted = [(words, beginning) for text, beginning in forms if (words := _words(text))]
    exact = {word for words, beginning in wanted for word in (words[:-1] if beginning else words)}
    beginnings = {words[-1] for words, beginning in wanted if beginning}
    is_phrase = any(len(words) > 1 for words, _ in wanted)
    named, parameters = _named(sorted(exact), sorted(beginnings))
    if numbers and not is_phrase:
        sql, values = _NUMBERS.format(named=named), [*parameters]
    else:
        data = "p.documents, p.shapes, p.lengths, " + ("p.places" if is_phrase else "''::bytea")
        sql, values = _POSTINGS.format(data=data, named=named), [*parameters]
        if ids is not None:
            sql, values = sql + _NEAR_IDS, [*values, list(ids)]
    if beginnings:
        sql, values = sql + _FRESH_BEGINNINGS.format(named=named), [*values, *parameters]
    else:
        sql, values = sql + _FRESH, [*values, sorted(exact), sorted(exact)]
    return PostingLists(rows.fetch(sql + (_TOTALS if totals else ""), values))


@lru_cache(maxsize=1024)
def _words(text: str) -> tuple[str, ...]:
    return tuple(tokens(text))


# Conditions on ``p.word``
def _named(exact: list[str], beginnings: Sequence[str]) -> tuple[str, list[Any]]:
    conditions, parameters = ["p.word = ANY(%s::text[])"], [exact]
    for beginning in beginnings:
        conditions.append('p.word COLLATE "C" >= %s AND p.word COLLATE "C" < %s')
        parameters += [beginning, beginning + "\U0010ffff"]  # type: ignore[list-item]
    return f"({' OR '.join(conditions)})", parameters


class PostingLists:
    def __init__(self, found: Iterable[Sequence[Any]]) -> None:
        self.documents = self.words = 0
        self._rows: dict[str, list[Packed]] = {}
        # Of waiting documents: length and places by word, and the words of older postings
        self._fresh: dict[int, tuple[int, dict[str, Places]]] = {}
        self._older: dict[int, frozenset[str]] = {}
        for kind, word, first, last, number, codes, documents, shapes, lengths, places, fresh in found:
            if kind == 0:
                row = Packed(first, last, number, codes, documents, shapes, lengths, places)
                self._rows.setdefault(word, []).append(row)
            elif kind == 1:
                self._fresh[first] = (number or 0, json.loads(fresh) if fresh else {})
                if word is not None:
                    self._older[first] = frozenset(word.split())
            else:
                self.documents, self.words = first, number
        self._known = {*self._rows, *(word for _, words in self._fresh.values() for word in words)}

    def idf(self, form: Form, *, least: float) -> float:
        hits = self.hits(form)
        idf = log((self.documents - hits + 0.5) / (hits + 0.5))
        return idf if idf > 0 else least

    def hits(self, form: Form) -> int:
        """Return the number of documents with a form."""
        words = self._meant(form)
        if len(words) != 1 or form[1]:
            return len(self.with_form(form))
        return sum(map(self._number, words[0]))

    def has(self, form: Form) -> bool:
        words = self._meant(form)
        return any(map(self._number, words[0])) if len(words) == 1 else bool(self.with_form(form))

    def with_form(self, form: Form) -> set[int]:
        words = self._meant(form)
        if len(words) > 1:
            return set(self._counts(form))
        return set().union(*(self._ids(word) for word in words[0])) if words else set()

    def in_columns(self, form: Form, columns: int) -> set[int]:
        """Return the documents with a form in one of the first ``columns``."""
        return {document for document, counts in self._counts(form).items() if any(counts[:columns])}

    def lengths(self, form: Form) -> dict[int, int]:
        """Map the documents with a form to their lengths."""
        words = self._meant(form)
        found: dict[int, int] = {}
        for word in words[0] if words else ():
            found |= self._word_lengths(word)
        return {document: found[document] for document in self._counts(form)} if len(words) > 1 else found

    def weighted(self, form: Form, within: Collection[int], weights: Sequence[float]) -> Iterator[tuple[int, float]]:
        """Yield those of some documents that have a form, with the sums of its weights."""
        by_counts: dict[Counts, float] = {}
        for document, counts in self._counts(form, within).items():
            if counts not in by_counts:
                by_counts[counts] = _sum(counts, weights)
            yield document, by_counts[counts]

    # For each word of the phrase, the words of the index that it stands for
    def _meant(self, form: Form) -> list[list[str]]:
        text, beginning = form
        words = [[word] for word in _words(text)]
        if words and beginning:
            words[-1] = [word for word in self._known if word.startswith(words[-1][0])]
        return words

    def _number(self, word: str) -> int:
        merged = sum(row.n for row in self._rows.get(word, ()))
        older = sum(word in words for words in self._older.values())
        return merged - older + sum(word in words for _, words in self._fresh.values())

    def _word_lengths(self, word: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for row in self._rows.get(word, ()):
            found.update(zip(_ids(row), unpacked(row.lengths, row.codes[2]), strict=True))
        self._refresh(word, found, {document: length for document, (length, _) in self._fresh.items()})
        return found

    def _ids(self, word: str) -> set[int]:
        found = dict.fromkeys(document for row in self._rows.get(word, ()) for document in _ids(row))
        self._refresh(word, found, dict.fromkeys(self._fresh))
        return set(found)

    def _counts(self, form: Form, within: Collection[int] | None = None) -> dict[int, Counts]:
        words = self._meant(form)
        if len(words) > 1:
            return self._phrase_counts(words, within)
        found: dict[int, Counts] = {}
        for word in words[0] if words else ():
            counts = self._word_counts(word, within)
            if not found:
                found = counts
                continue
            for document, more in counts.items():
                known = found.get(document, (0,) * COLUMNS)
                found[document] = tuple(map(sum, zip(known, more, strict=True)))  # type: ignore[assignment]
        return found

    def _word_counts(self, word: str, within: Collection[int] | None) -> dict[int, Counts]:
        found: dict[int, Counts] = {}
        for row in self._rows.get(word, ()):
            found.update(
                _of(within, _ids(row), map(SHAPES[row.codes[1]].__getitem__, unpacked(row.shapes, row.codes[1])))
            )
        self._refresh(word, found, self._fresh_places(word, within), counts_of)
        return found

    def _phrase_counts(self, words: Sequence[list[str]], within: Collection[int] | None) -> dict[int, Counts]:
        places: list[dict[int, set[int]]] = [{} for _ in words]
        # The rarest words first: the others are looked up in their documents only
        for number in sorted(range(len(words)), key=lambda number: sum(map(self._number, words[number]))):
            for word in words[number]:
                for document, found in self._word_places(word, within).items():
                    places[number].setdefault(document, set()).update(found)
            within = places[number].keys()
        first, *others = places
        counts: dict[int, Counts] = {}
        for document in within or ():
            further = [(COLUMNS * (number + 1), other[document]) for number, other in enumerate(others)]
            begins = [place for place in first[document] if all(place + ahead in found for ahead, found in further)]
            if begins:
                counts[document] = counts_of(begins)
        return counts

    def _word_places(self, word: str, within: Collection[int] | None) -> dict[int, Places]:
        found: dict[int, Places] = {}
        for row in self._rows.get(word, ()):
            found.update(_of(within, _ids(row), places_in(row)))
        self._refresh(word, found, self._fresh_places(word, within))
        return found

    def _fresh_places(self, word: str, within: Collection[int] | None) -> dict[int, Places]:
        return {
            document: words[word]
            for document, (_, words) in self._fresh.items()
            if word in words and (within is None or document in within)
        }

    # Replace what is from older postings of waiting documents
    def _refresh(self, word: str, found: dict[int, Any], fresh: dict[int, Any], made: Any = None) -> None:
        for document in self._older:
            found.pop(document, None)
        for document, value in fresh.items():
            if word in self._fresh[document][1]:
                found[document] = made(value) if made else value


def _ids(row: Packed) -> list[int]:
    return list(map(row.first.__add__, unpacked(row.documents, row.codes[0])))


def _of(within: Collection[int] | None, ids: list[int], values: Iterator[Any]) -> Iterable[tuple[int, Any]]:
    pairs = zip(ids, values, strict=True)
    return pairs if within is None else compress(pairs, map(within.__contains__, ids))


# Added one by one as FTS5 does, so that the last digits are the same
def _sum(counts: Counts, weights: Sequence[float]) -> float:
    total = 0.0
    for count, weight in zip(counts, weights, strict=True):
        for _ in range(count):
            total += weight
    return total
