"""Compare the FTS5 index of a store with one rebuilt from its log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

from memoryhub.core.backends.base import LIVE
from memoryhub.core.stores import rows

# Limit for the documents that are reported
_MOST = 1000
_TERMS_OF_A_DOCUMENT = 3
_AT_ONCE = 5000
_VOCABULARY = "CREATE VIRTUAL TABLE temp.{name} USING fts5vocab({database}, search_fts, instance)"
_TERMS = "SELECT term, doc, col, offset FROM temp.{name}"
# Sources whose body comes from their own stream alone
OWN_BODY = "('memory', 'message', 'session')"
# The longest words of each document in the rebuilt index, with their first position
_RAREST = (
    "SELECT doc, term, col, offset FROM (SELECT t.doc, t.term, t.col, min(t.offset) AS offset, row_number() OVER "
    "(PARTITION BY t.doc ORDER BY length(t.term) DESC, t.term) AS place FROM temp.made_terms AS t "
    "JOIN main.memories_searchdocument AS d ON d.id = t.doc "
    f"WHERE t.col = 'title' OR (t.col = 'body' AND d.source IN {OWN_BODY}) GROUP BY t.doc, t.term, t.col) "
    f"WHERE place <= {_TERMS_OF_A_DOCUMENT}"
)
_OTHER_SIZES = (
    "SELECT coalesce(m.id, l.id) FROM main.search_fts_docsize AS m "
    f"FULL JOIN {LIVE}.search_fts_docsize AS l ON l.id = m.id WHERE m.sz IS NOT l.sz LIMIT {_MOST}"
)
_SIZES = (
    "SELECT s.id, s.sz, coalesce(d.source IN {own}, 0) FROM {database}.search_fts_docsize AS s "
    "LEFT JOIN main.memories_searchdocument AS d ON d.id = s.id WHERE s.id IN (SELECT value FROM json_each(%s))"
)
_Term = tuple[bytes, int, int, int]
# Sorts after every word: UTF-8 never contains this byte
_END: _Term = (b"\xff", 0, 0, 0)
_COLUMNS = ("title", "body", "near", "date")


def differing_texts(sample: Sequence[int] | None) -> list[int]:
    """Return the documents whose words differ between the two indexes."""
    # Of a sample, only the longest words are compared, and the word counts that depend on the document's own stream:
    # the neighbours of a message are not in a sample
    if not all(_has_index(database) for database in ("main", LIVE)):
        return []
    rows.execute(_VOCABULARY.format(name="made_terms", database="main"))
    rows.execute(_VOCABULARY.format(name="live_terms", database=LIVE))
    try:
        found = _differing() if sample is None else _differing_in(sample)
        return sorted(found)
    finally:
        rows.execute("DROP TABLE temp.made_terms")
        rows.execute("DROP TABLE temp.live_terms")


def _has_index(database: str) -> bool:
    return bool(rows.fetch(f"SELECT 1 FROM {database}.sqlite_master WHERE name = 'search_fts'"))


def _differing() -> set[int]:
    found = {document for (document,) in rows.fetch(_OTHER_SIZES)}
    live, made = (rows.iterate(_TERMS.format(name=name)) for name in ("live_terms", "made_terms"))
    # Both vocabularies are sorted alike, so a merge finds the differences
    while (theirs := list(islice(live, _AT_ONCE))) == (ours := list(islice(made, _AT_ONCE))):
        if not theirs:
            return found
    return found | _unmatched(_placed(chain(theirs, live)), _placed(chain(ours, made)))


def _unmatched(live: Iterator[_Term], made: Iterator[_Term]) -> set[int]:
    found: set[int] = set()
    theirs, ours = next(live, _END), next(made, _END)
    while (theirs, ours) != (_END, _END) and len(found) < _MOST:
        if theirs != ours:
            found.add(min(theirs, ours)[1])
        before = min(theirs, ours)
        theirs = next(live, _END) if theirs == before else theirs
        ours = next(made, _END) if ours == before else ours
    return found


def _placed(terms: Iterator[tuple[Any, ...]]) -> Iterator[_Term]:
    for term, document, column, offset in terms:
        yield term.encode(), document, _COLUMNS.index(column), offset


def _differing_in(sample: Sequence[int]) -> set[int]:
    found = {
        document
        for document, term, column, offset in rows.fetch(_RAREST)
        if not rows.fetch(
            "SELECT 1 FROM temp.live_terms WHERE term = %s AND doc = %s AND col = %s AND offset = %s",
            [term, document, column, offset],
        )
    }
    made, live = _sizes("main", sample), _sizes(LIVE, sample)
    return found | {document for document in {*made, *live} if made.get(document) != live.get(document)}


def _sizes(database: str, sample: Sequence[int]) -> dict[int, tuple[int, ...]]:
    found = rows.fetch(_SIZES.format(own=OWN_BODY, database=database), [json.dumps(sample)])
    return {document: tuple(_varints(sizes))[: 2 if own_body else 1] for document, sizes, own_body in found}


# SQLite varints: big-endian, seven bits per byte, the last byte without the eighth bit
def _varints(packed: bytes) -> Iterator[int]:
    value = 0
    for byte in packed:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            yield value
            value = 0
