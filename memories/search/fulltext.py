"""Ranking by FTS5's bm25, and how a question with common words stays fast in a large store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memories.search.pipeline import USUAL, Pipeline
from memories.search.text import match_any
from memoryhub.core.stores import rows

RANKED_AT_MOST = 1000
"""So many matches are ranked and counted."""

_LARGE_STORE = 20_000
"""Documents above which it pays to look at the words one by one first."""
_TELLING_MATCHES = 5_000
"""Matches of the rarest words that are scored; words that would bring more are common."""
_ALL = -1
# The column of the index that has a document's id
DOCUMENT_ID = "f.rowid"
_ENOUGH = 50
"""Hits with which the rarest words answer the question."""

Hits = list[tuple[int, float]]


def rank(
    words: Sequence[str],
    conditions: list[str],
    parameters: list[Any],
    *,
    names: Sequence[str] = (),
    pipeline: Pipeline = USUAL,
) -> Hits:
    """Return the ids that match any of ``words`` and all conditions on ``d``, best first, with their scores.

    Args:
        words: what is looked for.
        conditions: SQL conditions on ``f``, the index, and ``d``, the documents.
        parameters: of the conditions.
        names: names of several words that count more as a whole.
        pipeline: the weights of the columns.

    In a large store, documents with only common words are not scored, as long as the rarer words find enough: bm25
    gives a word that is everywhere next to nothing, and scoring its matches is what takes the time. The score of a
    document that is scored still counts all words.
    """
    if not words:
        return []
    wanted = [*words, *names]
    rare = _rarest(words) if len(words) > 1 and _is_large() else words
    if len(rare) < len(words):
        hits = _scored(_each_twice(rare, wanted), conditions, parameters, pipeline)
        if len(hits) >= _ENOUGH:
            return [(document_id, score / 2) for document_id, score in hits]
    return _scored(match_any(wanted), conditions, parameters, pipeline)


def _each_twice(rare: Sequence[str], words: Sequence[str]) -> str:
    """Return the expression that is met by what has a rare word, and scores every word twice.

    bm25 counts each place where a word stands in the expression, and an expression can't say that a word is only to
    be counted: so all words stand there twice. Common words are then looked up in the rare words' matches alone.
    """
    others = [word for word in words if word not in rare]
    return f"({match_any(rare)}) AND ({match_any([*rare, *others, *others])})"


def _scored(expression: str, conditions: list[str], parameters: list[Any], pipeline: Pipeline) -> Hits:
    join = "JOIN memories_searchdocument d ON d.id = f.rowid" if any("d." in each for each in conditions) else ""
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


def _rarest(words: Sequence[str]) -> list[str]:
    """Return the rarest of ``words`` that together match a few thousand documents, or find enough at least."""
    counted = sorted((_count(word, _TELLING_MATCHES + 1), word) for word in words)
    if sum(count for count, _ in counted if count <= _TELLING_MATCHES) < _ENOUGH:
        counted = sorted((_count(word, _ALL), word) for word in words)
    rare, matches = [], 0
    for count, word in counted:
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
