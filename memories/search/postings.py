"""The full-text index in PostgreSQL: posting lists, ranked as FTS5's bm25 does (decision 76)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memories.search.posting_lists import PostingLists, read
from memories.search.posting_merge import COLUMNS, WAITING_AT_MOST, WORDS_WAITING_AT_MOST, differing_postings, merge
from memories.search.text import all_forms, indexed_form
from memories.search.unicode61 import tokens
from memoryhub.core.events.projection import companions
from memoryhub.core.stores import rows
from memoryhub.core.stores.schema import require_optional_sql

# ANALYZE would copy words into pg_statistic, where they stay after a redaction. Rows are short while they wait: without
# compression, a search reads them several times as fast.
CREATE = (
    "CREATE TABLE IF NOT EXISTS search_waiting (batch bigint, id bigint, length bigint, fresh jsonb NOT NULL, "
    'puts bigint NOT NULL, put_words bigint NOT NULL, merged text COLLATE "C", PRIMARY KEY (batch, id)) '
    "WITH (toast_tuple_target = 8160)",
    'CREATE TABLE IF NOT EXISTS search_texts (id bigint PRIMARY KEY, words text COLLATE "C" NOT NULL)',
    'CREATE TABLE IF NOT EXISTS search_postings (word text COLLATE "C", first bigint, last bigint NOT NULL, '
    "n bigint NOT NULL, codes text NOT NULL, documents bytea NOT NULL, shapes bytea NOT NULL, lengths bytea NOT NULL, "
    "places bytea NOT NULL, PRIMARY KEY (word, first)) WITH (toast_tuple_target = 8160)",
    "CREATE TABLE IF NOT EXISTS search_totals (id bigint PRIMARY KEY, batch bigint NOT NULL, "
    "documents bigint NOT NULL, words bigint NOT NULL)",
    "INSERT INTO search_totals (id, batch, documents, words) VALUES (1, 1, 0, 0) ON CONFLICT (id) DO NOTHING",
    "ALTER TABLE search_waiting ALTER COLUMN fresh SET STATISTICS 0, ALTER COLUMN merged SET STATISTICS 0",
    "ALTER TABLE search_texts ALTER COLUMN words SET STATISTICS 0",
    "ALTER TABLE search_postings ALTER COLUMN word SET STATISTICS 0, ALTER COLUMN codes SET STATISTICS 0, "
    "ALTER COLUMN documents SET STATISTICS 0, "
    "ALTER COLUMN shapes SET STATISTICS 0, ALTER COLUMN lengths SET STATISTICS 0, "
    "ALTER COLUMN places SET STATISTICS 0",
    # Appending to compressed arrays would take several times as long
    "ALTER TABLE search_postings ALTER COLUMN documents SET STORAGE EXTERNAL, "
    "ALTER COLUMN shapes SET STORAGE EXTERNAL, ALTER COLUMN lengths SET STORAGE EXTERNAL, "
    "ALTER COLUMN places SET STORAGE EXTERNAL",
)
_TABLES = ("search_waiting", "search_texts", "search_postings", "search_totals")

DOCUMENT_ID = "f.id"

_K1, _B = 1.2, 0.75
_LEAST_IDF = 1e-6
# About one change in so many looks whether enough waits to be merged, and each long document does
_LOOK_ONCE_IN = 32
_LONG = WORDS_WAITING_AT_MOST // _LOOK_ONCE_IN
_POSTING_COLUMNS = ["word", "first", "last", "n", "codes", "documents", "shapes", "lengths", "places"]

# A put counts in the totals even if its document is replaced or removed later: FTS5 without content counts so
_PUT = (
    "INSERT INTO search_waiting (batch, id, length, fresh, puts, put_words, merged) "
    "VALUES ((SELECT batch FROM search_totals), %s, %s, %s, 1, %s, {merged})"
)
_AGAIN = (
    " ON CONFLICT (batch, id) DO UPDATE SET length = excluded.length, fresh = excluded.fresh, "
    "puts = search_waiting.puts + 1, put_words = search_waiting.put_words + excluded.put_words"
)
# Also a new document may wait already: it was removed before
_NEW = _PUT.format(merged="NULL") + _AGAIN
_REPLACE = _PUT.format(merged="(SELECT words FROM search_texts WHERE id = %s)") + _AGAIN
_REMOVE = (
    "UPDATE search_waiting SET length = NULL, fresh = '{}' WHERE batch = (SELECT batch FROM search_totals) AND id = %s"
)
_REMOVE_MERGED = (
    "INSERT INTO search_waiting (batch, id, length, fresh, puts, put_words, merged) "
    "SELECT s.batch, t.id, NULL, '{}', 0, 0, t.words FROM search_texts t, search_totals s WHERE t.id = %s "
    "ON CONFLICT (batch, id) DO NOTHING"
)
_HOW_MANY_WAIT = (
    "SELECT count(*), CAST(coalesce(sum(put_words), 0) AS bigint) FROM search_waiting "
    "WHERE batch = (SELECT batch FROM search_totals)"
)


def register() -> None:
    """Let every store have these tables instead of FTS5's."""
    require_optional_sql("memories.search", *CREATE, needs="postings")
    companions["memories_searchdocument"] = _TABLES


def exists() -> bool:
    return bool(rows.fetch("SELECT 1 WHERE to_regclass('search_postings') IS NOT NULL"))


def can_exist() -> bool:
    return True


def put(row: tuple[int, str, str, str, str], *, is_new: bool) -> None:
    document, *texts = row
    length = 0
    places: dict[str, list[int]] = {}
    for column, text in enumerate(texts):
        words = tokens(text)
        length += len(words)
        for number, word in enumerate(words):
            places.setdefault(word, []).append(number * COLUMNS + column)
    fresh = json.dumps(places, ensure_ascii=False)
    values = [document, length, fresh, length]
    if is_new:
        rows.put("search_waiting", _NEW, values)
    else:
        rows.put("search_waiting", _REPLACE, [*values, document])
    _merge_sometimes(document, length)


def remove(document_id: int) -> None:
    rows.execute(_REMOVE, [document_id])
    rows.execute(_REMOVE_MERGED, [document_id])
    _merge_sometimes(document_id)


# Counting at each change would cost as much as the change. Ids of one kind of document may have a common factor.
def _merge_sometimes(document_id: int, length: int = 0) -> None:
    if length < _LONG and (document_id * 2654435761 >> 16) % _LOOK_ONCE_IN:
        return
    ((documents, words),) = rows.fetch(_HOW_MANY_WAIT)
    if documents >= WAITING_AT_MOST or words >= WORDS_WAITING_AT_MOST:
        merge()


# In a transaction, as ``put`` and ``remove`` are
optimize = merge


def lacks_newest() -> bool:
    return bool(rows.fetch(_UNFOUND_DOCUMENT))


# It waits, or is merged: then no word of it has only postings of documents before it
_UNFOUND_DOCUMENT = (
    "SELECT 1 FROM (SELECT max(id) AS newest FROM memories_searchdocument) AS d WHERE newest IS NOT NULL "
    "AND newest NOT IN (SELECT id FROM search_waiting WHERE batch = (SELECT batch FROM search_totals) "
    "AND length IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM search_texts t WHERE t.id = newest AND t.id NOT IN "
    "(SELECT id FROM search_waiting WHERE batch = (SELECT batch FROM search_totals) AND length IS NULL) "
    "AND NOT EXISTS (SELECT 1 FROM unnest(string_to_array(t.words, ' ')) AS w (word) WHERE NOT EXISTS "
    "(SELECT 1 FROM search_postings p WHERE p.word = w.word AND p.last >= newest)))"
)


def has_columns() -> bool:
    columns = rows.column(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass('search_postings') AND attnum > 0 "
        "AND NOT attisdropped ORDER BY attnum"
    )
    return columns == _POSTING_COLUMNS


def renew() -> None:
    for table in _TABLES:
        rows.execute(f"DROP TABLE {table}")
    for statement in CREATE:
        rows.execute(statement)


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
    needed = _indexed_forms(required)
    further = _indexed_forms([word for word in words if word not in required]) if twice else []
    lists = read([*needed, *further], totals=True)
    title, near, date = weights
    # FTS5 adds in this order; sums of other orders differ in their last digits
    order = [*needed, *needed, *further, *further] if twice else needed
    scores = _scores(lists, needed, order, (title, 1.0, near, date))
    best = sorted(scores, key=scores.__getitem__, reverse=True)
    hits = _meeting(best, conditions, parameters, most) if conditions else best[:most]
    times = 1 + twice
    with_words: set[int] = set()
    for form in dict.fromkeys(order):
        counts = lists.weighted(form, set(hits), (title, 1.0, 0.0, date))
        with_words |= {document for document, count in counts if count}
    return [(document, scores[document] / times, document in with_words) for document in hits]


def _indexed_forms(words: Iterable[str]) -> list[tuple[str, bool]]:
    return [indexed_form(form) for form in all_forms(words)]


_Forms = Sequence[tuple[str, bool]]


# By id, so that a sort by score leaves equal ones in the order of their ids
def _scores(lists: PostingLists, needed: _Forms, order: _Forms, weights: Sequence[float]) -> dict[int, float]:
    lengths: dict[int, int] = {}
    for form in dict.fromkeys(needed):
        lengths |= lists.lengths(form)
    if not lengths:
        return {}
    average = lists.words / lists.documents
    norms = {document: _K1 * (1 - _B + _B * lengths[document] / average) for document in sorted(lengths)}
    scores = dict.fromkeys(norms, 0.0)
    parts = {form: _part(lists, form, norms, weights) for form in dict.fromkeys(order)}
    for form in order:
        for document, part in parts[form]:
            scores[document] += part
    return scores


def _part(
    lists: PostingLists, form: tuple[str, bool], norms: Mapping[int, float], weights: Sequence[float]
) -> list[tuple[int, float]]:
    idf = lists.idf(form, least=_LEAST_IDF)
    return [
        (document, idf * (times * (_K1 + 1.0) / (times + norms[document])))
        for document, times in lists.weighted(form, norms, weights)
    ]


# The first documents in their order that meet the conditions, in batches as large as those before let expect
def _meeting(best: Sequence[int], conditions: Sequence[str], parameters: Sequence[Any], most: int) -> list[int]:
    is_joined = "d." in " ".join(conditions)
    sql = " AND ".join([_BY_DOCUMENT if is_joined else _BY_ID, *conditions])
    hits: list[int] = []
    start = 0
    while start < len(best) and len(hits) < most:
        expected = (most - len(hits)) * start // max(len(hits), 1)
        batch = best[start : start + max(most, expected)]
        allowed = set(rows.column(sql, [batch, *parameters]))
        hits += [document for document in batch if document in allowed]
        start += len(batch)
    return hits[:most]


_BY_ID = "SELECT f.id FROM unnest(%s::bigint[]) AS f (id) WHERE true"
_BY_DOCUMENT = (
    "SELECT d.id FROM memories_searchdocument d CROSS JOIN LATERAL (SELECT d.id) AS f WHERE d.id = ANY(%s::bigint[])"
)


def count(word: str, *, most: int | None) -> int:
    forms = _indexed_forms([word])
    lists = read(forms)
    hits = lists.hits(forms[0]) if len(forms) == 1 else len(set().union(*map(lists.with_form, forms)))
    return hits if most is None else min(hits, most)


def counts(words: Sequence[str], *, most: int) -> rows.Steps[list[int]]:
    return [min(len(documents), most) for documents in (yield from _in_text(words, None))]


def matches(words: Sequence[str], ids: Sequence[int]) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for place, documents in enumerate(rows.finish(_in_text(words, ids))):
        pairs += [(hit, place) for hit in ids if hit in documents]
    return pairs


# Documents with each word in their title or body: the other columns repeat the texts around a message, and its date
def _in_text(words: Sequence[str], ids: Sequence[int] | None) -> rows.Steps[list[set[int]]]:
    lists = yield from read.steps(_indexed_forms(words), ids=ids)
    documents: list[set[int]] = []
    for word in words:
        documents.append(set().union(*(lists.in_columns(form, 2) for form in _indexed_forms([word]))))
    return documents


def existing(words: Sequence[str]) -> set[str]:
    lists = read(_indexed_forms(words), numbers=True)
    return {word for word in words if any(map(lists.has, _indexed_forms([word])))}


def with_any(groups: Sequence[Sequence[str]], *, by_score: bool, most: int) -> tuple[str, tuple[Any, ...]]:
    lists = read([(word, False) for group in groups for word in group], totals=by_score)
    scores: dict[int, float] = {}
    for group in groups:
        forms = [(word, False) for word in group]
        documents = set.intersection(*map(lists.with_form, forms))
        group_scores: dict[int, float] = {}
        if by_score and documents:
            group_scores = _scores(lists, forms, forms, (1.0,) * COLUMNS)
        for document in documents:
            scores[document] = scores.get(document, 0.0) + group_scores.get(document, 0.0)
    best = sorted(scores, reverse=not by_score)
    if by_score:
        best.sort(key=scores.__getitem__, reverse=True)
    return "SELECT id FROM unnest(%s::bigint[]) AS f (id)", (best[:most],)


def shares(words: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
    forms = [(word, False) for word in words]
    lists = read(forms)
    points: Counter[int] = Counter()
    for form in forms:
        points.update(lists.in_columns(form, 2))
        points.update(lists.in_columns(form, 1))
    sql = "SELECT id, share FROM unnest(%s::bigint[], %s::double precision[]) AS f (id, share)"
    return sql, (list(points), [number * 0.5 / len(words) for number in points.values()])


differing = differing_postings
