"""The ranking by meaning, as searches blend it in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memories.embeddings import meaning
from memories.embeddings.meaning import Meaning
from memories.search.blend import Answered, Asked, Ranker, define_ranker
from memoryhub.core import rows
from memoryhub.core.dialect import IDS

MEANING = "meaning"

_WEIGHT = 0.5
"""Measured for the bundled model; docs/retrieval.md has the figures."""
_ALONE = 0.3
"""Texts that have nothing to do with each other are near 0."""
_GOOD = 0.4
_ALONE_AT_MOST = 50


@contextmanager
def asking(asked: Asked) -> Iterator[Callable[[], Answered]]:
    """Ask for the documents nearest to the question that meet its conditions, with their cosines."""
    with meaning.asking(asked.question) as answer:
        yield lambda: _passing(asked, answer())


def _passing(asked: Asked, found: Meaning) -> Answered:
    if not found.hits:
        return Answered(problem=found.problem, asked=found.model is not None)
    ids = json.dumps([each for each, _ in found.hits])
    where = " AND ".join([f"d.id IN {IDS}", *asked.conditions])
    passing = rows.fetch(f"SELECT d.id FROM memories_searchdocument d WHERE {where}", [ids, *asked.parameters])
    allowed = {document_id for (document_id,) in passing}
    return Answered([hit for hit in found.hits if hit[0] in allowed])


define_ranker(Ranker(MEANING, asking, weight=_WEIGHT, good=_GOOD, alone=_ALONE, alone_at_most=_ALONE_AT_MOST))
