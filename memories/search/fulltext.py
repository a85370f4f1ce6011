"""Ranking by words, and how questions with common words stay fast in a large store (decision 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memories.search.index import Hits, text_index
from memories.search.pipeline import USUAL, Pipeline
from memoryhub.core.stores import rows

# Matches that are ranked and counted
RANKED_AT_MOST = 1000

# Number of documents from which words are counted first
_LARGE_STORE = 20_000
# Matches of the rarest words that are scored; words with more are common
_TELLING_MATCHES = 5_000
# Hits with which the rare words are enough of an answer
_ENOUGH = 50


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
    wanted, weights = [*words, *names], (pipeline.title, pipeline.near, pipeline.date)
    # Scoring matches of common words takes most of the time and hardly changes the order: in a large store, documents
    # with only common words are not scored if the rare words find enough. Scores still count all words (decision 11).
    rare = _rarest(words) if len(words) > 1 and _is_large() else words
    if len(rare) < len(words):
        hits = text_index.score(rare, wanted, conditions, parameters, weights=weights, most=RANKED_AT_MOST)
        if len(hits) >= _ENOUGH:
            return hits
    return text_index.score(wanted, wanted, conditions, parameters, weights=weights, most=RANKED_AT_MOST)


def _is_large() -> bool:
    found = rows.fetch("SELECT max(id) FROM memories_searchdocument")
    return (found[0][0] or 0) > _LARGE_STORE


# The rarest words that together match a few thousand documents, and at least enough
def _rarest(words: Sequence[str]) -> list[str]:
    counts = sorted((text_index.count(word, most=_TELLING_MATCHES + 1), word) for word in words)
    if sum(count for count, _ in counts if count <= _TELLING_MATCHES) < _ENOUGH:
        counts = sorted((text_index.count(word, most=None), word) for word in words)
    rare, matches = [], 0
    for count, word in counts:
        if matches >= _ENOUGH and matches + count > _TELLING_MATCHES:
            break
        rare.append(word)
        matches += count
    return rare
