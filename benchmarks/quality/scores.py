"""How good rankings are, by what the right answers are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.quality.questions import Question

DEEPEST = 10
_SESSIONS = 5


@dataclass(frozen=True, slots=True)
class Scored:
    """One question's result."""

    question: Question
    recall_5: float
    recall_10: float
    reciprocal_rank: float
    session_5: float | None
    """1 where one of the first five sessions has an answer; None where documents have no sessions."""


@dataclass(frozen=True, slots=True)
class Means:
    """The means over questions."""

    questions: int
    recall_5: float
    recall_10: float
    mrr: float
    session_5: float | None


def score(question: Question, found: Sequence[tuple[int, str]]) -> Scored:
    """Return how well a ranking answers; ``found`` has the id and the session of each hit, best first."""
    ids = [each for each, _ in found[:DEEPEST]]
    first = next((rank for rank, each in enumerate(ids, 1) if each in question.answers), None)
    sessions = list(dict.fromkeys(session for _, session in found if session))[:_SESSIONS]
    return Scored(
        question,
        _recall(question, ids[:5]),
        _recall(question, ids),
        1 / first if first else 0.0,
        float(not question.sessions.isdisjoint(sessions)) if question.sessions else None,
    )


def _recall(question: Question, ids: Sequence[int]) -> float:
    return len(question.answers.intersection(ids)) / len(question.answers)


def means(scored: Sequence[Scored]) -> Means:
    """Return the means of results.

    Raises:
        ValueError: there are none.
    """
    if not scored:
        raise ValueError("nothing was asked")
    with_sessions = [each.session_5 for each in scored if each.session_5 is not None]
    return Means(
        len(scored),
        _mean([each.recall_5 for each in scored]),
        _mean([each.recall_10 for each in scored]),
        _mean([each.reciprocal_rank for each in scored]),
        _mean(with_sessions) if with_sessions else None,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
