"""Ranking by bm25, and how questions with common words stay fast in a large store (decision 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memories.search.pipeline import USUAL, Pipeline
from memories.search.text import match_any
from memoryhub.core.stores import rows

# Matches that are ranked and counted
RANKED_AT_MOST = 1000

# Number of documents from which words are counted first
_LARGE_STORE = 20_000
# Matches of the rarest words that are scored; words with more are common
_TELLING_MATCHES = 5_000
_ALL = -1
# The column of the index that has a document's id
DOCUMENT_ID = "f.rowid"
# Hits with which the rare words are enough of an answer
_ENOUGH = 50

Hits = list[tuple[int, float]]


def rank(
    words: Sequence[str],
    conditions: list[str],
    parameters: list[Any],
    *,
    names: Sequence[str] = (),
    pipeline: Pipeline = USUAL,
) -> Hits:
    """Return the ids that match any of ``words`` and all conditions, best first, with their scores.

    Args:
        words: search terms.
        conditions: SQL conditions on ``f``, the index, and ``d``, the documents.
        parameters: of the conditions.
        names: names of several words that count more as a whole.
        pipeline: the weights of the columns.
    """
    if not words:
        return []
    wanted = [*words, *names]
    # Scoring matches of common words takes most of the time and hardly changes the order: in a large store, documents
    # with only common words are not scored if the rare words find enough. Scores still count all words (decision 11).
    rare = _rarest(words) if len(words) > 1 and _is_large() else words
    if len(rare) < len(words):
        hits = _scored(_each_twice(rare, wanted), conditions, parameters, pipeline)
        if len(hits) >= _ENOUGH:
            return [(document_id, score / 2) for document_id, score in hits]
    return _scored(match_any(wanted), conditions, parameters, pipeline)


# An FTS5 expression that requires a rare word but scores all words. FTS5 cannot score a word without requiring it, and
# bm25 counts every occurrence in the expression: so each word occurs twice, and the caller halves the scores. Common
# words are then looked up in the matches of rare words only.
def _each_twice(rare: Sequence[str], words: Sequence[str]) -> str:
    others = [word for word in words if word not in rare]
    return f"({match_any(rare)}) AND ({match_any([*rare, *others, *others])})"


def _scored(expression: str, conditions: list[str], parameters: list[Any], pipeline: Pipeline) -> Hits:
    join = (
        "JOIN memories_searchdocument d ON d.id = f.rowid" if any("d." in condition for condition in conditions) else ""
    )
    where = "".join(f" AND {condition}" for condition in conditions)
    found = rows.fetch(
        f"SELECT f.rowid, bm25(search_fts, %s, 1.0, %s, %s) AS score FROM search_fts f {join} "
        f"WHERE search_fts MATCH %s{where} ORDER BY score LIMIT {RANKED_AT_MOST}",
        [pipeline.title, pipeline.near, pipeline.date, expression, *parameters],
    )
    return [(document_id, -score) for document_id, score in found]


def _is_large() -> bool:
    found = rows.fetch("SELECT max(id) FROM memories_searchdocument")
    return (found[0][0] or 0) > _LARGE_STORE


# The rarest words that together match a few thousand documents, and at least enough
def _rarest(words: Sequence[str]) -> list[str]:
    counts = sorted((_count(word, _TELLING_MATCHES + 1), word) for word in words)
    if sum(count for count, _ in counts if count <= _TELLING_MATCHES) < _ENOUGH:
        counts = sorted((_count(word, _ALL), word) for word in words)
    rare, matches = [], 0
    for count, word in counts:
        if matches >= _ENOUGH and matches + count > _TELLING_MATCHES:
            break
        rare.append(word)
        matches += count
    return rare


def _count(word: str, at_most: int) -> int:
    matches = "SELECT 1 FROM search_fts WHERE search_fts MATCH %s LIMIT %s"
    found = rows.fetch(f"SELECT count(*) FROM ({matches})", [match_any([word]), at_most])
    count: int = found[0][0]
    return count
