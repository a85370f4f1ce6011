"""Posting lists of the full-text index in PostgreSQL (decision 76): packed rows, their merge, a check."""

from __future__ import annotations

import heapq
import json
import sys
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice, repeat
from operator import itemgetter
from typing import NamedTuple

from memories.search.fts5 import OWN_BODY
from memoryhub.core.backends.base import HERE, LIVE
from memoryhub.core.stores import rows

# Merges are rarer with more documents, and searches slower, which read the waiting documents one by one
WAITING_AT_MOST = 256
# The put that merges takes about 0.1 ms a word
WORDS_WAITING_AT_MOST = 20_000
# Documents in a row, which is rewritten as a whole; so many fit into a page, so that none is stored out of line
_ROW_AT_MOST = 500

# A place is a column and a number of the word in it: ``number * 4 + column``
COLUMNS = 4
Places = Sequence[int]
# How often a document's title, body, texts around it and date have a word
Counts = tuple[int, int, int, int]
# Bits of the counts in a shape, by its code
_BITS = {"H": (3, 6, 5, 2), "Q": (14, 24, 18, 8)}
_WIDE, _NARROW_LIMIT = "I", 1 << 16


class Posting(NamedTuple):
    # Words of the document
    length: int
    places: Places


class Packed(NamedTuple):
    first: int
    last: int
    n: int
    # Types of the documents, shapes, lengths and places
    codes: str
    documents: bytes
    shapes: bytes
    lengths: bytes
    places: bytes


# The counts of each shape of one code
class Shapes(dict[int, Counts]):
    def __init__(self, code: str) -> None:
        self._bits = _BITS[code]

    def __missing__(self, shape: int) -> Counts:
        title, body, near, _ = self._bits
        counts = self[shape] = (
            shape & (1 << title) - 1,
            shape >> title & (1 << body) - 1,
            shape >> title + body & (1 << near) - 1,
            shape >> title + body + near,
        )
        return counts


SHAPES = {code: Shapes(code) for code in _BITS}


def counts_of(places: Places) -> Counts:
    counts = [0] * COLUMNS
    for place in places:
        counts[place % COLUMNS] += 1
    return counts[0], counts[1], counts[2], counts[3]


def unpacked(data: bytes, code: str) -> array[int]:
    values = array(code, data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def packed(postings: Mapping[int, Posting], first: int, codes: str = "HHHH") -> Packed:
    """Return the row of postings in the order of their documents, with items at least as wide as ``codes``."""
    documents = [document - first for document in postings]
    lengths = [posting.length for posting in postings.values()]
    counts = [counts_of(posting.places) for posting in postings.values()]
    places = [place for posting in postings.values() for place in sorted(posting.places)]
    document_code, shape_code, length_code, place_code = tuple(codes)
    shape_code, shapes = _shapes(counts, shape_code)
    codes = _code(documents, document_code) + shape_code + _code(lengths, length_code) + _code(places, place_code)
    arrays: list[bytes] = []
    for code, values in zip(codes, (documents, shapes, lengths, places), strict=True):
        items = array(code, values)
        if sys.byteorder == "big":
            items.byteswap()
        arrays.append(items.tobytes())
    return Packed(first, max(postings), len(documents), codes, *arrays)


def postings_in(row: Packed) -> dict[int, Posting]:
    documents = map(row.first.__add__, unpacked(row.documents, row.codes[0]))
    postings = map(Posting, unpacked(row.lengths, row.codes[2]), places_in(row))
    return dict(zip(documents, postings, strict=True))


def places_in(row: Packed) -> Iterator[Places]:
    """Return for each document of a row where it has the word."""
    counts = SHAPES[row.codes[1]]
    every = iter(unpacked(row.places, row.codes[3]))
    return (list(islice(every, sum(counts[shape]))) for shape in unpacked(row.shapes, row.codes[1]))


def _code(values: Sequence[int], least: str) -> str:
    return least if max(values) < _NARROW_LIMIT else _WIDE


def _shapes(counts: Sequence[Counts], least: str) -> tuple[str, list[int]]:
    title, body, near, date = _BITS[least]
    for t, b, n, d in counts:
        if t >> title or b >> body or n >> near or d >> date:
            return _shapes(counts, "Q")
    third = title + body
    fourth = third + near
    return least, [t | b << title | n << third | d << fourth for t, b, n, d in counts]


# A batch is what waits for one merge. Rows of merged batches stay until a vacuum, all of them if one transaction merges
# often: a search for the present batch never sees them.
_OF_BATCH = "batch = (SELECT batch FROM search_totals)"
_WAITING = f"SELECT id, length, CAST(fresh AS text), merged FROM search_waiting WHERE {_OF_BATCH} ORDER BY id"
_PRESENT = "SELECT word, first, last, n, codes FROM search_postings WHERE word = ANY(%s) ORDER BY first"
_ROWS = (
    "SELECT p.word, p.first, p.last, p.n, p.codes, p.documents, p.shapes, p.lengths, p.places FROM search_postings p "
    "JOIN json_to_recordset(%s) AS wanted (word text, first bigint) ON p.word = wanted.word AND p.first = wanted.first"
)
_DELETE = (
    "DELETE FROM search_postings p USING json_to_recordset(%s) AS gone (word text, first bigint) "
    "WHERE p.word = gone.word AND p.first = gone.first"
)
_JSON_ROWS = (
    "(SELECT word, first, last, n, codes, decode(documents, 'hex') AS documents, decode(shapes, 'hex') AS shapes, "
    "decode(lengths, 'hex') AS lengths, decode(places, 'hex') AS places FROM json_to_recordset(%s) AS row (word text, "
    "first bigint, last bigint, n bigint, codes text, documents text, shapes text, lengths text, places text))"
)
_PUT = (
    "INSERT INTO search_postings (word, first, last, n, codes, documents, shapes, lengths, places) "
    f"SELECT * FROM {_JSON_ROWS} AS new ON CONFLICT (word, first) DO UPDATE SET last = excluded.last, n = excluded.n, "
    "codes = excluded.codes, documents = excluded.documents, shapes = excluded.shapes, lengths = excluded.lengths, "
    "places = excluded.places"
)
# With the items of a row's arrays, so that it need not be read
_APPEND = (
    "UPDATE search_postings p SET last = added.last, n = p.n + added.n, documents = p.documents || added.documents, "
    "shapes = p.shapes || added.shapes, lengths = p.lengths || added.lengths, places = p.places || added.places "
    f"FROM {_JSON_ROWS} AS added WHERE p.word = added.word AND p.first = added.first"
)
_REMOVED = f"DELETE FROM search_texts t USING search_waiting w WHERE w.{_OF_BATCH} AND w.length IS NULL AND w.id = t.id"
_MERGED = (
    "INSERT INTO search_texts (id, words) SELECT w.id, "
    "coalesce((SELECT string_agg(word, ' ') FROM jsonb_object_keys(w.fresh) AS word), '') FROM search_waiting w "
    f"WHERE w.{_OF_BATCH} AND w.length IS NOT NULL ON CONFLICT (id) DO UPDATE SET words = excluded.words"
)
_NEXT_BATCH = (
    "UPDATE search_totals AS s SET batch = s.batch + 1, documents = s.documents + w.puts, words = s.words + w.words "
    "FROM (SELECT coalesce(sum(puts), 0) AS puts, coalesce(sum(put_words), 0) AS words FROM search_waiting "
    f"WHERE {_OF_BATCH}) AS w"
)
_DONE = "DELETE FROM search_waiting WHERE batch = (SELECT batch - 1 FROM search_totals)"
_WRITTEN_AT_ONCE = 2000

# What a merge changes of a word: documents with their new postings, None for those that no longer have it
_Changes = dict[int, Posting | None]
_Key = tuple[str, int]


def merge() -> None:
    """Move the waiting documents' words to the posting lists, and remove those of replaced and removed documents.

    Must be in a transaction that holds the store's write lock: a document that came between the statements would count
    as merged, and no list would have its words.
    """
    rows.require_transaction()
    waiting = rows.fetch(_WAITING)
    if not waiting:
        return
    changes = _changes(waiting)
    words = sorted(changes)
    for start in range(0, len(words), _WRITTEN_AT_ONCE):
        _change({word: changes[word] for word in words[start : start + _WRITTEN_AT_ONCE]})
    for statement in (_REMOVED, _MERGED, _NEXT_BATCH, _DONE):
        rows.execute(statement)


def _changes(waiting: Iterable[tuple[int, int, str, str | None]]) -> dict[str, _Changes]:
    changes: dict[str, _Changes] = {}
    for document, length, fresh, merged in waiting:
        for word in (merged or "").split():
            changes.setdefault(word, {})[document] = None
        for word, places in json.loads(fresh).items():
            changes.setdefault(word, {})[document] = Posting(length, places)
    return changes


class _Row(NamedTuple):
    first: int
    last: int
    n: int
    codes: str


def _change(changes: Mapping[str, _Changes]) -> None:
    present: dict[str, list[_Row]] = {}
    for word, *values in rows.fetch(_PRESENT, [list(changes)]):
        present.setdefault(word, []).append(_Row(*values))
    new_rows: list[tuple[str, Packed]] = []
    appended: list[tuple[str, Packed]] = []
    rewritten: dict[_Key, _Changes] = {}
    for word, documents in changes.items():
        word_rows = present.get(word, [])
        last = word_rows[-1].last if word_rows else 0
        new = {document: posting for document, posting in documents.items() if posting is not None and document > last}
        if len(new) < len(documents):
            for first, changes_of_row in _by_row(word_rows, documents).items():
                rewritten[word, first] = changes_of_row
        elif word_rows and (addition := _addition(word_rows[-1], new)):
            appended.append((word, addition))
        else:
            new_rows += zip(repeat(word), _row_parts(new, min(new)))
    _rewrite(rewritten, new_rows)
    _write_rows(_APPEND, appended)
    _write_rows(_PUT, new_rows)


# What can be added to a row as it is; None if it is full or its items are too narrow
def _addition(row: _Row, new: Mapping[int, Posting]) -> Packed | None:
    if row.n + len(new) > _ROW_AT_MOST:
        return None
    addition = packed(new, row.first, row.codes)
    return addition if addition.codes == row.codes else None


# Each document belongs to the last row that begins at or before it, else to the first one
def _by_row(word_rows: Sequence[_Row], documents: _Changes) -> dict[int, _Changes]:
    firsts = [row.first for row in word_rows] or [min(documents)]
    changes: dict[int, _Changes] = {}
    for document, posting in documents.items():
        first = firsts[max(bisect_right(firsts, document) - 1, 0)]
        changes.setdefault(first, {})[document] = posting
    return changes


def _rewrite(changes: Mapping[_Key, _Changes], new_rows: list[tuple[str, Packed]]) -> None:
    if not changes:
        return
    present = {(row[0], row[1]): Packed(*row[1:]) for row in rows.fetch(_ROWS, [_keys(changes)])}
    gone = []
    for (word, first), documents in changes.items():
        row = present.get((word, first))
        postings: _Changes = {**postings_in(row)} if row else {}
        postings |= documents
        remaining = {document: posting for document, posting in sorted(postings.items()) if posting is not None}
        parts = list(_row_parts(remaining, first))
        new_rows += zip(repeat(word), parts)
        if row and all(part.first != first for part in parts):
            gone.append((word, first))
    if gone:
        rows.execute(_DELETE, [_keys(gone)])


def _row_parts(postings: Mapping[int, Posting], first: int) -> Iterator[Packed]:
    documents = list(postings)
    for start in range(0, len(documents), _ROW_AT_MOST):
        part = {document: postings[document] for document in documents[start : start + _ROW_AT_MOST]}
        yield packed(part, documents[start] if start else min(first, documents[0]))


def _keys(keys: Iterable[_Key]) -> str:
    return json.dumps([{"word": word, "first": first} for word, first in keys])


def _write_rows(sql: str, packed_rows: Iterable[tuple[str, Packed]]) -> None:
    listed = [{"word": word, **row._asdict()} for word, row in packed_rows]
    if listed:
        rows.execute(sql, [json.dumps(listed, default=bytes.hex)])


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
_WAITING_TEXTS = (
    "SELECT id, length, CAST(fresh AS text) FROM {database}.search_waiting "
    "WHERE batch = (SELECT batch FROM {database}.search_totals)"
)
_MERGED_WORDS = "SELECT words FROM {database}.search_texts WHERE id = ANY(%s::bigint[])"
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
_WITH_OWN_BODY = f"SELECT id FROM {HERE}.memories_searchdocument WHERE id = ANY(%s::bigint[]) AND source IN {OWN_BODY}"


def differing_postings(sample: Sequence[int] | None) -> list[int]:
    """Return the documents whose words differ between the two indexes."""
    here, live = _Index(HERE), _Index(LIVE)
    if sample is not None:
        return sorted(_differing_of_sample(here, live, sample) | live.incomplete())
    documents = here.ids() ^ live.ids()
    for ours, theirs in _by_word(here, live, None):
        documents.update(document for document in {*ours, *theirs} if ours.get(document) != theirs.get(document))
        if len(documents) >= _MOST:
            break
    return sorted(documents)[:_MOST]


class _Index:
    def __init__(self, database: str) -> None:
        self._database = database
        # The words of waiting documents; nothing of a removed one
        self.waiting: dict[int, tuple[int, dict[str, list[int]]]] = {
            document: (length or 0, json.loads(fresh)) for document, length, fresh in self._fetch(_WAITING_TEXTS)
        }
        self._removed = {document for document, length, _ in self._fetch(_WAITING_TEXTS) if length is None}

    def ids(self) -> set[int]:
        merged = set(chain.from_iterable(self._fetch("SELECT id FROM {database}.search_texts")))
        return (merged | self.waiting.keys()) - self._removed

    def incomplete(self) -> set[int]:
        """Return the documents that searches can't find: they don't wait, and have too few postings."""
        lost = set(chain.from_iterable(self._fetch(_UNLISTED)))
        ((listed, expected),) = self._fetch(_SUMS)
        if listed != expected:
            counts: Counter[int] = Counter()
            for _, *row in self._pages(None):
                counts.update(list(postings_in(Packed(*row))))  # type: ignore[arg-type]
            lost |= {document for document, words in self._fetch(_WORDS_OF_EACH) if counts[document] != words}
        return set(sorted(lost)[:_MOST])

    def words_of(self, documents: Sequence[int]) -> set[str]:
        merged = set(" ".join(chain.from_iterable(self._fetch(_MERGED_WORDS, [list(documents)]))).split())
        return merged.union(*(self.waiting[document][1] for document in documents if document in self.waiting))

    def postings(self, words: Collection[str] | None = None) -> Iterator[tuple[str, _Documents]]:
        """Yield the words, sorted, with their postings; default: of all words."""
        fresh: dict[str, _Documents] = {}
        for document, (length, places_by_word) in self.waiting.items():
            for word, places in places_by_word.items():
                if words is None or word in words:
                    fresh.setdefault(word, {})[document] = Posting(length, sorted(places))
        both = heapq.merge(self._merged(words), sorted(fresh.items()), key=itemgetter(0))
        for word, parts in groupby(both, key=itemgetter(0)):
            postings: _Documents = {}
            for _, part in parts:
                postings |= part
            yield word, postings

    # Without the older postings of waiting documents
    def _merged(self, words: Collection[str] | None) -> Iterator[tuple[str, _Documents]]:
        for row_word, *values in self._pages(words):
            postings = postings_in(Packed(*values))  # type: ignore[arg-type]
            yield str(row_word), {key: posting for key, posting in postings.items() if key not in self.waiting}

    def _pages(self, words: Collection[str] | None) -> Iterator[tuple[object, ...]]:
        named = "" if words is None else " AND word = ANY(%s::text[])"
        parameters = [] if words is None else [sorted(words)]
        sql = _PAGE.replace("{named}", named)
        last: tuple[object, object] = ("", 0)
        while page := self._fetch(sql, [*last, *parameters, _AT_ONCE]):
            yield from page
            last = page[-1][0], page[-1][1]

    def _fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple]:  # type: ignore[type-arg]
        return rows.fetch(sql.replace("{database}", self._database), list(parameters))


# By the texts that depend on the document's own stream: the neighbours of a message are not in a sample
def _differing_of_sample(here: _Index, live: _Index, sample: Sequence[int]) -> set[int]:
    with_own_body = set(rows.column(_WITH_OWN_BODY, [list(sample)]))
    documents = (here.ids() ^ live.ids()).intersection(sample)
    for ours, theirs in _by_word(here, live, here.words_of(sample) | live.words_of(sample)):
        for document in sample:
            columns = (_TITLE, _BODY) if document in with_own_body else (_TITLE,)
            if _places_in_columns(ours, document, columns) != _places_in_columns(theirs, document, columns):
                documents.add(document)
    return documents


def _places_in_columns(postings: Mapping[int, Posting], document: int, columns: Sequence[int]) -> list[int]:
    posting = postings.get(document, Posting(0, ()))
    return [place for place in posting.places if place % COLUMNS in columns]


# The postings of each word in both indexes
def _by_word(here: _Index, live: _Index, words: Collection[str] | None) -> Iterator[tuple[_Documents, _Documents]]:
    ours = ((word, 0, postings) for word, postings in here.postings(words))
    theirs = ((word, 1, postings) for word, postings in live.postings(words))
    for _, both in groupby(heapq.merge(ours, theirs, key=itemgetter(0, 1)), key=itemgetter(0)):
        pair: list[_Documents] = [{}, {}]
        for _, place, postings in both:
            pair[place] = postings
        yield pair[0], pair[1]
