"""Where another ranking comes in beside the words: one by meaning, say.

Both lists are brought to 0..1 by their best score and added by weight; the sum is brought back to the scale of the
words, so that everything after it works as without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

Hits = list[tuple[int, float]]

TEXT = "text"
"""What a hit is found by that has the words."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What another ranking is asked."""

    question: str
    conditions: list[str]
    """SQL conditions that a hit must meet: on ``d``, its row of ``memories_searchdocument``."""
    parameters: list[Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """What another ranking says."""

    hits: Hits = field(default_factory=list)
    """Best first, higher is better; none where it has nothing to say."""
    problem: str = ""
    """Why it could not say anything, where it should have."""
    asked: bool = True
    """Whether it was asked at all: one that is switched off has no answer and no problem."""


@dataclass(frozen=True, slots=True)
class Ranker:
    """Another ranking of the current store's documents."""

    name: str
    asking: Callable[[Asked], AbstractContextManager[Callable[[], Answered]]]
    """Asks it; what is yielded waits for the answer, so that something else can be done until it is called."""
    weight: float
    """Its share of the sum, 0..1."""
    good: float
    """What a good answer scores at least; where its best scores less, it counts for less than its weight."""
    alone: float
    """The score from which a document is found that has none of the words."""
    alone_at_most: int
    """So many such documents are found."""


@dataclass(slots=True)
class Blended:
    """What all rankings find together."""

    hits: Hits
    scores: dict[str, dict[int, float]] = field(default_factory=dict)
    """What each ranking that answered gave those of the hits that it found good, by its name."""
    problems: list[str] = field(default_factory=list)
    alone: set[int] = field(default_factory=set)
    """Hits that have none of the words."""


Others = Sequence[tuple[Ranker, Callable[[], Answered]]]
"""The rankings that were asked, each with what waits for its answer."""

_rankers: list[Ranker] = []


def define_ranker(ranker: Ranker) -> None:
    """Register another ranking, which every search that has a full-text index blends in."""
    _rankers.append(ranker)


@contextmanager
def ask_other_rankings(asked: Asked) -> Iterator[Others]:
    """Ask every registered ranking, and let them find their answers while something else is done."""
    with ExitStack() as stack:
        yield [(ranker, stack.enter_context(ranker.asking(asked))) for ranker in _rankers]


def blend_others(hits: Hits, others: Others) -> Blended:
    """Return the hits of the words together with those of the rankings that were asked, best first."""
    blended = Blended(hits)
    by_words = {each for each, _ in hits}
    for ranker, answer in others:
        said = answer()
        if said.problem:
            blended.problems.append(said.problem)
        elif said.asked:
            blended.hits = blend(blended.hits, said.hits, ranker) if said.hits else blended.hits
            found = {each for each, _ in blended.hits}
            good = {each: score for each, score in said.hits if score >= ranker.alone and each in found}
            blended.scores[ranker.name] = good
            blended.alone = found - by_words
    return blended


def blend(words: Hits, others: Hits, ranker: Ranker) -> Hits:
    """Return both lists as one, best first. What only the other one has must be good to be in it."""
    scale = (words[0][1] if words else 1.0) or 1.0
    best = max(others[0][1], ranker.good)
    sums = {each: (1 - ranker.weight) * score for each, score in words}
    alone = [each for each, score in others if score >= ranker.alone and each not in sums]
    sums |= dict.fromkeys(alone[: ranker.alone_at_most], 0.0)
    for each, score in others:
        if each in sums:
            sums[each] += ranker.weight * scale * max(0.0, score) / best
    return sorted(sums.items(), key=lambda hit: -hit[1])


def reasons(blended: Blended) -> dict[int, str]:
    """Return by what each hit was found that another ranking found good: ``text; meaning 0.52``."""
    said: dict[int, list[str]] = {}
    for name, scores in blended.scores.items():
        for each, score in scores.items():
            said.setdefault(each, [] if each in blended.alone else [TEXT]).append(f"{name} {score:.2f}")
    return {each: "; ".join(parts) for each, parts in said.items()}
