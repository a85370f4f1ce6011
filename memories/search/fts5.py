"""The full-text index in SQLite: a contentless FTS5 table, ranked by its bm25 (decision 3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from memories.search import fts5_check
from memories.search.text import match_any
from memoryhub import env
from memoryhub.core.events.projection import define_companions
from memoryhub.core.stores import rows
from memoryhub.core.stores.schema import require_optional_sql

CREATE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS search_fts USING fts5(title, body, near, date, "
    "content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2')"
)
require_optional_sql("memories.search", CREATE, needs="fts5")
define_companions(
    "memories_searchdocument", "search_fts_data", "search_fts_idx", "search_fts_docsize", "search_fts_config"
)

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
    return bool(rows.fetch(_UNFOUND_DOCUMENT))


_UNFOUND_DOCUMENT = (
    "SELECT 1 FROM (SELECT max(id) AS newest FROM memories_searchdocument) "
    "WHERE newest IS NOT NULL AND newest NOT IN (SELECT id FROM search_fts_docsize)"
)


def has_columns() -> bool:
    found = [name for (name,) in rows.fetch("SELECT name FROM pragma_table_info('search_fts') ORDER BY cid")]
    return found == _COLUMN_NAMES


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
) -> list[tuple[int, float]]:
    twice = list(required) != list(words)
    expression = _each_twice(required, words) if twice else match_any(words)
    join = (
        "JOIN memories_searchdocument d ON d.id = f.rowid" if any("d." in condition for condition in conditions) else ""
    )
    where = "".join(f" AND {condition}" for condition in conditions)
    found = rows.fetch(
        f"SELECT f.rowid, bm25(search_fts, %s, 1.0, %s, %s) AS score FROM search_fts f {join} "
        f"WHERE search_fts MATCH %s{where} ORDER BY score LIMIT {most}",
        [*weights, expression, *parameters],
    )
    return [(document_id, -score / 2 if twice else -score) for document_id, score in found]


# Requires a rare word but scores all words. FTS5 cannot score a word without requiring it, and bm25 counts every
# occurrence in the expression: so each word occurs twice, and the scores are halved. Common words are then looked up
# in the matches of rare words only.
def _each_twice(rare: Sequence[str], words: Sequence[str]) -> str:
    others = [word for word in words if word not in rare]
    return f"({match_any(rare)}) AND ({match_any([*rare, *others, *others])})"


def count(word: str, *, most: int | None) -> int:
    found: int = rows.fetch(_COUNT, [match_any([word]), -1 if most is None else most])[0][0]
    return found


_COUNT = "SELECT count(*) FROM (SELECT 1 FROM search_fts WHERE search_fts MATCH %s LIMIT %s)"


def counts(words: Sequence[str], *, most: int) -> list[int]:
    found = rows.fetch(_COUNTS, [most, _in_text(words)])
    return [count for _, count in sorted(found)]


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


def known(words: Sequence[str]) -> set[str]:
    return {words[key] for (key,) in rows.fetch(_HAVE_HITS, [json.dumps([match_any([word]) for word in words])])}


_HAVE_HITS = (
    "SELECT word.key FROM json_each(%s) AS word "
    "WHERE EXISTS (SELECT 1 FROM search_fts WHERE search_fts MATCH word.value)"
)


def with_any(groups: Sequence[Sequence[str]], *, by_score: bool, most: int) -> tuple[str, tuple[Any, ...]]:
    all_of = (" AND ".join(f'"{word}"' for word in group) for group in groups)
    expression = " OR ".join(f"({words})" for words in all_of)
    order = "rank" if by_score else "rowid DESC"
    sql = f"SELECT rowid AS id FROM search_fts WHERE search_fts MATCH %s ORDER BY {order} LIMIT %s"
    return sql, (expression, most)


def shares(words: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
    expressions = [form for word in words for form in (f'{{title body}} : "{word}"', f'title : "{word}"')]
    return _SHARES.format(words=len(words)), (json.dumps(expressions),)


_SHARES = (
    "SELECT search_fts.rowid AS id, count(*) * 0.5 / {words} AS share FROM json_each(%s) AS w CROSS JOIN search_fts "
    "WHERE search_fts MATCH w.value GROUP BY search_fts.rowid"
)

differing = fts5_check.differing_texts
