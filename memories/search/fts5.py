"""The full-text index in SQLite: a contentless FTS5 table, ranked by its bm25 (decision 3), and its check."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

from memories.search.text import match_any
from memoryhub import env
from memoryhub.core.backends.base import LIVE
from memoryhub.core.events.projection import companions
from memoryhub.core.stores import rows
from memoryhub.core.stores.schema import require_optional_sql

CREATE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS search_fts USING fts5(title, body, near, date, "
    "content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2')"
)
require_optional_sql("memories.search", CREATE, needs="fts5")
companions["memories_searchdocument"] = ("search_fts_data", "search_fts_idx", "search_fts_docsize", "search_fts_config")

DOCUMENT_ID = "f.rowid"

_COLUMN_NAMES = ["title", "body", "near", "date"]
_COLUMNS = "search_fts (rowid, title, body, near, date) VALUES (%s, %s, %s, %s, %s)"
_NEW_TEXT = f"INSERT INTO {_COLUMNS}"
# Takes a row of ``index.text_row``
PUT_TEXT = f"INSERT OR REPLACE INTO {_COLUMNS}"


def exists() -> bool:
    return can_exist() and bool(rows.fetch("SELECT 1 FROM sqlite_master WHERE name = 'search_fts'"))


def can_exist() -> bool:
    return not env.database_url() and bool(rows.fetch("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'"))


def put(row: tuple[int, str, str, str, str], *, is_new: bool) -> None:
    rows.put("search_fts", _NEW_TEXT if is_new else PUT_TEXT, row)


def remove(document_id: int) -> None:
    rows.execute("DELETE FROM search_fts WHERE rowid = %s", [document_id])


# FTS5 only hides deleted rows
def optimize() -> None:
    rows.execute("INSERT INTO search_fts (search_fts) VALUES ('optimize')")


def lacks_newest() -> bool:
    newest = "SELECT max(id) AS newest FROM memories_searchdocument"
    indexed = "SELECT id FROM search_fts_docsize"
    return bool(rows.fetch(f"SELECT 1 FROM ({newest}) WHERE newest IS NOT NULL AND newest NOT IN ({indexed})"))


def has_columns() -> bool:
    return rows.column("SELECT name FROM pragma_table_info('search_fts') ORDER BY cid") == _COLUMN_NAMES


def renew() -> None:
    rows.execute("DROP TABLE search_fts")
    rows.execute(CREATE)


def score(
    required: Sequence[str],
    words: Sequence[str],
    conditions: Sequence[str],
    parameters: Sequence[Any],
    *,
    weights: tuple[float, float, float],
    most: int,
) -> list[tuple[int, float, bool]]:
    twice = list(required) != list(words)
    expression = match_any(words)
    if twice:
        # Requires a rare word but scores all words. FTS5 cannot score a word without requiring it, and bm25 counts
        # every occurrence in the expression: so each word occurs twice, and the scores are halved. Common words are
        # then looked up in the matches of rare words only.
        common = [word for word in words if word not in required]
        expression = f"({match_any(required)}) AND ({match_any([*required, *common, *common])})"
    where = " AND ".join(["search_fts MATCH %s", *conditions])
    join = "JOIN memories_searchdocument d ON d.id = f.rowid" if "d." in where else ""
    title, _, date = weights
    matches = rows.fetch(
        f"SELECT f.rowid, bm25(search_fts, %s, 1.0, %s, %s) AS score, bm25(search_fts, %s, 1.0, 0.0, %s) < 0 "
        f"FROM search_fts f {join} WHERE {where} ORDER BY score LIMIT {most}",
        [*weights, title, date, expression, *parameters],
    )
    times = 1 + twice
    return [(document, -score / times, bool(has_words)) for document, score, has_words in matches]


def count(word: str, *, most: int | None) -> int:
    sql = "SELECT count(*) FROM (SELECT 1 FROM search_fts WHERE search_fts MATCH %s LIMIT %s)"
    return int(rows.fetch(sql, [match_any([word]), -1 if most is None else most])[0][0])


def counts(words: Sequence[str], *, most: int) -> rows.Steps[list[int]]:
    (lines,) = yield [(_COUNTS, [most, _in_text(words)])]
    return [count for _, count in sorted(lines)]


def matches(words: Sequence[str], ids: Sequence[int]) -> list[tuple[int, int]]:
    return rows.fetch(_MATCHES, [_in_text(words), json.dumps(list(ids))])


_COUNTS = (
    "SELECT word.key, (SELECT count(*) FROM (SELECT 1 FROM search_fts WHERE search_fts MATCH word.value LIMIT %s)) "
    "FROM json_each(%s) AS word"
)
_MATCHES = (
    "SELECT hit.value, word.key FROM json_each(%s) AS word CROSS JOIN json_each(%s) AS hit CROSS JOIN search_fts "
    "WHERE search_fts.rowid = hit.value AND search_fts MATCH word.value"
)


# The other columns repeat the texts around a message, and its date
def _in_text(words: Sequence[str]) -> str:
    return json.dumps([f"{{title body}} : ({match_any([word])})" for word in words])


def existing(words: Sequence[str]) -> set[str]:
    sql = (
        "SELECT word.key FROM json_each(%s) AS word "
        "WHERE EXISTS (SELECT 1 FROM search_fts WHERE search_fts MATCH word.value)"
    )
    expressions = [match_any([word]) for word in words]
    return {words[key] for key in rows.column(sql, [json.dumps(expressions)])}


def with_any(groups: Sequence[Sequence[str]], *, by_score: bool, most: int) -> tuple[str, tuple[Any, ...]]:
    all_of = [" AND ".join(map('"{}"'.format, group)) for group in groups]
    expression = " OR ".join(map("({})".format, all_of))
    # ORDER BY rank would sort all matches with their scores in a statement of its own
    order = "bm25(search_fts)" if by_score else "rowid DESC"
    sql = f"SELECT rowid AS id FROM search_fts WHERE search_fts MATCH %s ORDER BY {order} LIMIT %s"
    return sql, (expression, most)


def shares(words: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
    expressions: list[str] = []
    for word in words:
        expressions += [f'{{title body}} : "{word}"', f'title : "{word}"']
    sql = (
        f"SELECT search_fts.rowid AS id, count(*) * 0.5 / {len(words)} AS share FROM json_each(%s) AS w "
        "CROSS JOIN search_fts WHERE search_fts MATCH w.value GROUP BY search_fts.rowid"
    )
    return sql, (json.dumps(expressions),)


# The check: the index compared with one rebuilt from the log

# Limit for the documents that are reported
_MOST = 1000
_TERMS_OF_A_DOCUMENT = 3
_AT_ONCE = 5000
_VOCABULARY = "CREATE VIRTUAL TABLE temp.{name} USING fts5vocab({database}, search_fts, instance)"
_TERMS = "SELECT term, doc, col, offset FROM temp.{name}"
# Sources whose body comes from their own stream alone
OWN_BODY = "('memory', 'message', 'session', 'command')"
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


def differing(sample: Sequence[int] | None) -> list[int]:
    """Return the documents whose words differ between the two indexes."""
    # A sample is compared by its longest words, and by the word counts that depend on the document's own stream alone:
    # the neighbours of a message are not in a sample
    for database in ("main", LIVE):
        if not rows.fetch(f"SELECT 1 FROM {database}.sqlite_master WHERE name = 'search_fts'"):
            return []
    rows.execute(_VOCABULARY.format(name="made_terms", database="main"))
    rows.execute(_VOCABULARY.format(name="live_terms", database=LIVE))
    try:
        return sorted(_differing_documents() if sample is None else _differing_of_sample(sample))
    finally:
        rows.execute("DROP TABLE temp.made_terms")
        rows.execute("DROP TABLE temp.live_terms")


def _differing_documents() -> set[int]:
    documents = set(rows.column(_OTHER_SIZES))
    live = rows.iterate(_TERMS.format(name="live_terms"))
    rebuilt = rows.iterate(_TERMS.format(name="made_terms"))
    # Both vocabularies are sorted alike, so a merge finds the differences
    while (theirs := list(islice(live, _AT_ONCE))) == (ours := list(islice(rebuilt, _AT_ONCE))):
        if not theirs:
            return documents
    return documents | _unmatched(_sortable(chain(theirs, live)), _sortable(chain(ours, rebuilt)))


def _unmatched(live: Iterator[_Term], rebuilt: Iterator[_Term]) -> set[int]:
    documents: set[int] = set()
    theirs = next(live, _END)
    ours = next(rebuilt, _END)
    while (theirs, ours) != (_END, _END) and len(documents) < _MOST:
        first = min(theirs, ours)
        if theirs != ours:
            documents.add(first[1])
        if theirs == first:
            theirs = next(live, _END)
        if ours == first:
            ours = next(rebuilt, _END)
    return documents


def _sortable(terms: Iterator[tuple[Any, ...]]) -> Iterator[_Term]:
    for term, document, column, offset in terms:
        yield term.encode(), document, _COLUMN_NAMES.index(column), offset


def _differing_of_sample(sample: Sequence[int]) -> set[int]:
    documents: set[int] = set()
    same_term = "SELECT 1 FROM temp.live_terms WHERE doc = %s AND term = %s AND col = %s AND offset = %s"
    for document, term, column, offset in rows.fetch(_RAREST):
        if not rows.fetch(same_term, [document, term, column, offset]):
            documents.add(document)
    rebuilt = _word_counts("main", sample)
    live = _word_counts(LIVE, sample)
    return documents | {document for document in {*rebuilt, *live} if rebuilt.get(document) != live.get(document)}


# In the title, and in the body if it comes from the document's own stream alone
def _word_counts(database: str, sample: Sequence[int]) -> dict[int, tuple[int, ...]]:
    sizes = rows.fetch(_SIZES.format(own=OWN_BODY, database=database), [json.dumps(sample)])
    return {document: tuple(_varints(packed))[: 1 + own_body] for document, packed, own_body in sizes}


# SQLite varints: big-endian, seven bits per byte, the last byte without the eighth bit
def _varints(packed: bytes) -> Iterator[int]:
    value = 0
    for byte in packed:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            yield value
            value = 0
