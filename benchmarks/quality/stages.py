"""The stages of ranking; each adds to the one before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.util import find_spec

from memories.search.weights import USUAL, Pipeline


class Ranking(StrEnum):
    HUB = "hub"
    BM25 = "bm25"
    MEANING = "meaning"


@dataclass(frozen=True, slots=True)
class Stage:
    key: str
    label: str
    pipeline: Pipeline
    # Blend in the ranking by embeddings
    blended: bool = False
    ranking: Ranking = Ranking.HUB


def stages(*, meaning: bool = False) -> list[Stage]:
    """Return the stages from the simplest to the default ranking, then with embeddings if ``meaning``."""
    words = replace(USUAL, near=0.0, date=0.0, neighbours=0.0, session=0.0, speaker=0.0, phrases=False)
    near = replace(words, near=USUAL.near)
    date = replace(near, date=USUAL.date)
    phrases = replace(date, phrases=USUAL.phrases)
    neighbours = replace(phrases, neighbours=USUAL.neighbours)
    session = replace(neighbours, session=USUAL.session)
    speaker = replace(session, speaker=USUAL.speaker)
    with_meaning = [Stage("meaning", "+ embeddings", USUAL, blended=True)] if meaning else []
    return [
        Stage("words", "title and body", words),
        Stage("near", "+ text before and after", near),
        Stage("date", "+ the date, written out", date),
        Stage("phrases", "+ names as a whole", phrases),
        Stage("neighbours", "+ the neighbours' scores", neighbours),
        Stage("session", "+ the session with the most hits", session),
        Stage("speaker", "+ the speaker named in the question", speaker),
        *with_meaning,
    ]


def references(*, meaning: bool = False) -> list[Stage]:
    """Return what the stages are compared with: BM25 of a library, where it is installed, and embeddings alone."""
    bm25 = [Stage("bm25", "BM25 (bm25s)", USUAL, ranking=Ranking.BM25)] if find_spec("bm25s") else []
    alone = [Stage("alone", "embeddings alone", USUAL, ranking=Ranking.MEANING)] if meaning else []
    return [*bm25, *alone]
