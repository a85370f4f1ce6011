"""Blend other rankings, such as search by meaning, with the ranking by words.

The scores by words are normalised by the best, those of the other ranking by how far its best hit is ahead of an
ordinary one (decision 52). They are added by weight; the sum is scaled back to the word scores, so that later stages
need not know about it. Weights and measurements are in docs/internals/retrieval.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

Hits = list[tuple[int, float]]

# Reason of a hit that contains the words
TEXT = "text"


@dataclass(frozen=True, slots=True)
class RankingRequest:
    question: str
    # SQL conditions on ``d``, the row of ``memories_searchdocument``
    conditions: list[str]
    parameters: list[Any]


@dataclass(frozen=True, slots=True)
class RankingAnswer:
    # Best first; higher is better
    hits: Hits = field(default_factory=list)
    # Why there is no answer
    problem: str = ""
    # False if the ranking is switched off: no answer, and no problem
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Ranker:
    """Another ranking of the documents of the current store."""

    name: str
    # Starts the search; the yielded function waits for the answer
    asking: Callable[[RankingRequest], AbstractContextManager[Callable[[], RankingAnswer]]]
    # Share of the sum, 0 to 1
    weight: float
    # Place of a hit that is about something else; 0 is such a score if there are fewer hits
    ordinary: int
    # How far a clear answer is ahead of an ordinary one; if the best hit is less so, the ranking counts for less
    lead: float
    # Score from which a document without any of the words is included
    alone: float
    # Limit for such documents
    alone_at_most: int


@dataclass(slots=True)
class Blended:
    hits: Hits
    # Per ranking, its scores of those hits that it found good
    scores: dict[str, dict[int, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # Hits without any of the words
    alone: set[int] = field(default_factory=set)


# The rankings that were started, each with the function that waits for its answer
Others = Sequence[tuple[Ranker, Callable[[], RankingAnswer]]]

_rankers: list[Ranker] = []


def define_ranker(ranker: Ranker) -> None:
    _rankers.append(ranker)


@contextmanager
def ask_other_rankings(request: RankingRequest) -> Iterator[Others]:
    with ExitStack() as stack:
        yield [(ranker, stack.enter_context(ranker.asking(request))) for ranker in _rankers]


def blend_others(hits: Hits, others: Others) -> Blended:
    """Return the hits by words blended with those of the other rankings, best first."""
    blended = Blended(hits)
    by_words = {hit for hit, _ in hits}
    for ranker, answer in others:
        response = answer()
        if response.problem:
            blended.problems.append(response.problem)
        elif response.asked:
            blended.hits = blend(blended.hits, response.hits, ranker) if response.hits else blended.hits
            found = {hit for hit, _ in blended.hits}
            good = {hit: score for hit, score in response.hits if score >= ranker.alone and hit in found}
            blended.scores[ranker.name] = good
            blended.alone = found - by_words
    return blended


def blend(words: Hits, others: Sequence[tuple[int, float]], ranker: Ranker) -> Hits:
    """Return both lists as one, best first; hits of the other list alone must score at least ``ranker.alone``."""
    scale = (words[0][1] if words else 1.0) or 1.0
    ordinary = max(0.0, others[ranker.ordinary - 1][1]) if len(others) >= ranker.ordinary else 0.0
    lead = max(others[0][1] - ordinary, ranker.lead)
    sums = {hit: (1 - ranker.weight) * score for hit, score in words}
    alone = [hit for hit, score in others if score >= ranker.alone and hit not in sums]
    sums |= dict.fromkeys(alone[: ranker.alone_at_most], 0.0)
    for hit, score in others:
        if hit in sums:
            sums[hit] += ranker.weight * scale * max(0.0, score - ordinary) / lead
    return sorted(sums.items(), key=lambda ranked: -ranked[1])


def reasons(blended: Blended) -> dict[int, str]:
    """Return how each hit that another ranking found good was found: ``text; meaning 0.52``."""
    found_by: dict[int, list[str]] = {}
    for name, scores in blended.scores.items():
        for hit, score in scores.items():
            found_by.setdefault(hit, [] if hit in blended.alone else [TEXT]).append(f"{name} {score:.2f}")
    return {hit: "; ".join(parts) for hit, parts in found_by.items()}
