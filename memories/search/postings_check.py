"""Compare the full-text index of a store in PostgreSQL with one rebuilt from its log."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from memories.search.fts5_check import OWN_BODY
from memories.search.posting_merge import COLUMNS, Packed, Posting, postings_in
from memoryhub.core.backends.base import HERE, LIVE
from memoryhub.core.stores import rows

# Limit for the documents that are reported
_MOST = 1000
_AT_ONCE = 2000
_TITLE, _BODY = 0, 1

# The postings of one word
_Documents = dict[int, Posting]

_PAGE = (
    "SELECT word, first, last, n, codes, documents, shapes, lengths, places FROM {database}.search_postings "
    "WHERE (word, first) > (%s, %s){named} ORDER BY word, first LIMIT %s"
)
_WAITING = (
    "SELECT id, length, CAST(fresh AS text) FROM {database}.search_waiting "
    "WHERE batch = (SELECT batch FROM {database}.search_totals)"
)
_PRESENT = "SELECT id FROM {database}.search_texts"
_WORDS = "SELECT words FROM {database}.search_texts WHERE id = ANY(%s::bigint[])"
# Documents that are neither merged nor wait
_UNLISTED = (
    "SELECT d.id FROM {database}.memories_searchdocument d WHERE NOT EXISTS (SELECT 1 FROM {database}.search_texts t "
    "WHERE t.id = d.id) AND NOT EXISTS (SELECT 1 FROM {database}.search_waiting w WHERE w.id = d.id AND w.length "
    "IS NOT NULL AND w.batch = (SELECT batch FROM {database}.search_totals))"
)
# A merged document has a posting for each of its words, so the sums are equal
_SUMS = (
    "SELECT (SELECT coalesce(sum(n), 0) FROM {database}.search_postings), "
    "(SELECT coalesce(sum(cardinality(string_to_array(words, ' '))), 0) FROM {database}.search_texts)"
)
_WORDS_OF_EACH = "SELECT id, cardinality(string_to_array(words, ' ')) FROM {database}.search_texts"
_OWN = f"SELECT id FROM {HERE}.memories_searchdocument WHERE id = ANY(%s::bigint[]) AND source IN {OWN_BODY}"


def differing_texts(sample: Sequence[int] | None) -> list[int]:
    """Return the documents whose words differ between the two indexes."""
    here, live = _Index(HERE), _Index(LIVE)
    if sample is None:
        return sorted(_differing(here, live))
    return sorted(_differing_in(here, live, sample) | live.incomplete())


class _Index:
    def __init__(self, database: str) -> None:
        self._database = database
        # The words of waiting documents; nothing of a removed one
        self.waiting: dict[int, tuple[int, dict[str, list[int]]]] = {
            document: (length or 0, json.loads(fresh)) for document, length, fresh in self._fetch(_WAITING)
        }
        self._removed = {document for document, length, _ in self._fetch(_WAITING) if length is None}

    def ids(self) -> set[int]:
        return ({document for (document,) in self._fetch(_PRESENT)} | self.waiting.keys()) - self._removed

    def incomplete(self) -> set[int]:
        """Return the documents that searches can't find: they don't wait, and have too few postings."""
        lost = {document for (document,) in self._fetch(_UNLISTED)}
        ((listed, expected),) = self._fetch(_SUMS)
        if listed != expected:
            found = Counter(document for _, *row in self._pages(None) for document in postings_in(Packed(*row)))  # type: ignore[arg-type]
            lost |= {document for document, words in self._fetch(_WORDS_OF_EACH) if found[document] != words}
        return set(sorted(lost)[:_MOST])

    def words_of(self, documents: Sequence[int]) -> set[str]:
        merged = {word for (words,) in self._fetch(_WORDS, [list(documents)]) for word in words.split()}
        return merged.union(*(self.waiting[document][1] for document in documents if document in self.waiting))

    def postings(self, words: Collection[str] | None = None) -> Iterator[tuple[str, _Documents]]:
        """Yield the words, sorted, with their postings; default: of all words."""
        fresh: dict[str, _Documents] = {}
        for document, (length, found) in self.waiting.items():
            for word, places in found.items():
                if words is None or word in words:
                    fresh.setdefault(word, {})[document] = Posting(length, sorted(places))
        both = heapq.merge(self._merged(words), sorted(fresh.items()), key=itemgetter(0))
        for word, parts in groupby(both, key=itemgetter(0)):
            yield word, {document: posting for _, part in parts for document, posting in part.items()}

    # Without the older postings of waiting documents
    def _merged(self, words: Collection[str] | None) -> Iterator[tuple[str, _Documents]]:
        for row_word, *values in self._pages(words):
            postings = postings_in(Packed(*values))  # type: ignore[arg-type]
            yield str(row_word), {key: posting for key, posting in postings.items() if key not in self.waiting}

    def _pages(self, words: Collection[str] | None) -> Iterator[tuple[object, ...]]:
        sql = _PAGE.replace("{named}", "" if words is None else " AND word = ANY(%s::text[])")
        named = [] if words is None else [sorted(words)]
        last: tuple[object, object] = ("", 0)
        while page := self._fetch(sql, [*last, *named, _AT_ONCE]):
            yield from page
            last = page[-1][0], page[-1][1]

    def _fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple]:  # type: ignore[type-arg]
        return rows.fetch(sql.replace("{database}", self._database), list(parameters))


def _differing(here: _Index, live: _Index) -> set[int]:
    found = here.ids() ^ live.ids()
    for ours, theirs in _by_word(here, live, None):
        found |= {document for document in ours.keys() | theirs.keys() if ours.get(document) != theirs.get(document)}
        if len(found) >= _MOST:
            return set(sorted(found)[:_MOST])
    return found


# Of a sample, only texts that depend on the document's own stream: the neighbours of a message are not in a sample
def _differing_in(here: _Index, live: _Index, sample: Sequence[int]) -> set[int]:
    own = {document for (document,) in rows.fetch(_OWN, [list(sample)])}
    found = (here.ids() ^ live.ids()).intersection(sample)
    for ours, theirs in _by_word(here, live, here.words_of(sample) | live.words_of(sample)):
        for document in sample:
            columns = (_TITLE, _BODY) if document in own else (_TITLE,)
            if _places(ours, document, columns) != _places(theirs, document, columns):
                found.add(document)
    return found


def _places(postings: Mapping[int, Posting], document: int, columns: Sequence[int]) -> list[int]:
    posting = postings.get(document)
    return [place for place in posting.places if place % COLUMNS in columns] if posting else []


# The postings of each word in both indexes
def _by_word(here: _Index, live: _Index, words: Collection[str] | None) -> Iterator[tuple[_Documents, _Documents]]:
    ours = ((word, 0, postings) for word, postings in here.postings(words))
    theirs = ((word, 1, postings) for word, postings in live.postings(words))
    for _, found in groupby(heapq.merge(ours, theirs, key=itemgetter(0, 1)), key=itemgetter(0)):
        pair: list[_Documents] = [{}, {}]
        for _, place, postings in found:
            pair[place] = postings
        yield pair[0], pair[1]
