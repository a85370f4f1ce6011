"""Ranking by FTS5's bm25, and how a question with common words stays fast in a large store."""

from __future__ import annotations

from typing import Any

from memories.search.text import match_any
from memoryhub.core import rows

RANKED_AT_MOST = 1000
"""So many matches are ranked and counted."""

TITLE_WEIGHT, BODY_WEIGHT = 2.0, 1.0

_LARGE_STORE = 20_000
"""Documents above which it pays to look at the words one by one first."""
_TELLING_MATCHES = 5_000
"""Matches of the rarest words that are scored; words that would bring more are common."""
_ENOUGH = 50
"""Hits with which the rarest words answer the question."""

Hits = list[tuple[int, float]]


def rank(words: list[str], conditions: list[str], parameters: list[Any]) -> Hits:
    """Return the ids that match any of ``words`` and all conditions on ``d``, best first, with their scores.

    In a large store, documents with only common words are not scored, as long as the rarer words find enough: bm25
    gives a word that is everywhere next to nothing, and scoring its matches is what takes the time. The score of a
    document that is scored still counts all words.
    """
    if not words:
        return []
    rare = _rarest(words) if len(words) > 1 and _is_large() else words
    if len(rare) < len(words):
        among = "+f.rowid IN (SELECT rowid FROM search_fts WHERE search_fts MATCH %s)"
        hits = _scored(words, [among, *conditions], [match_any(rare), *parameters])
        if len(hits) >= _ENOUGH:
            return hits
    return _scored(words, conditions, parameters)


def _scored(words: list[str], conditions: list[str], parameters: list[Any]) -> Hits:
    join = "JOIN memories_searchdocument d ON d.id = f.rowid" if any("d." in each for each in conditions) else ""
    where = "".join(f" AND {condition}" for condition in conditions)
    found = rows.fetch(
        f"SELECT f.rowid, bm25(search_fts, {TITLE_WEIGHT}, {BODY_WEIGHT}) AS score FROM search_fts f {join} "
        f"WHERE search_fts MATCH %s{where} ORDER BY score LIMIT {RANKED_AT_MOST}",
        [match_any(words), *parameters],
    )
    return [(document_id, -score) for document_id, score in found]


def _is_large() -> bool:
    found = rows.fetch("SELECT max(id) FROM memories_searchdocument")
    return (found[0][0] or 0) > _LARGE_STORE


def _rarest(words: list[str]) -> list[str]:
    """Return the rarest of ``words`` that together match a few thousand documents, or find enough at least."""
    counted = sorted((_count(word), word) for word in words)
    rare, matches = [], 0
    for count, word in counted:
        if matches >= _ENOUGH and matches + count > _TELLING_MATCHES:
            break
        rare.append(word)
        matches += count
    return rare


def _count(word: str) -> int:
    found = rows.fetch("SELECT count(*) FROM search_fts WHERE search_fts MATCH %s", [match_any([word])])
    count: int = found[0][0]
    return count
