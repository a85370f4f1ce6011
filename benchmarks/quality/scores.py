"""Recall and mean reciprocal rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.quality.questions import Question

DEEPEST = 10
_SESSIONS = 5


@dataclass(frozen=True, slots=True)
class Scored:
    question: Question
    recall_5: float
    recall_10: float
    reciprocal_rank: float
    # 1 if one of the first five sessions has an answer; None if documents have no sessions
    session_5: float | None


@dataclass(frozen=True, slots=True)
class Means:
    questions: int
    recall_5: float
    recall_10: float
    mrr: float
    session_5: float | None


def score(question: Question, found: Sequence[tuple[int, str]]) -> Scored:
    """Score a ranking; ``found`` has the id and the session of each hit, best first."""
    ids = [hit for hit, _ in found[:DEEPEST]]
    first = next((rank for rank, hit in enumerate(ids, 1) if hit in question.answers), None)
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
    """Return the means of scores.

    Raises:
        ValueError: there are no scores.
    """
    if not scored:
        raise ValueError("there are no scores")
    with_sessions = [score.session_5 for score in scored if score.session_5 is not None]
    return Means(
        len(scored),
        _mean([score.recall_5 for score in scored]),
        _mean([score.recall_10 for score in scored]),
        _mean([score.reciprocal_rank for score in scored]),
        _mean(with_sessions) if with_sessions else None,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
