"""Recall and mean reciprocal rank."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2

from benchmarks.quality.questions import Question

DEEPEST = 10
_SESSIONS = 5
_RESAMPLED = 1_000

# The bounds of a 95 % interval
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Scored:
    question: Question
    recall_5: float
    recall_10: float
    reciprocal_rank: float
    # Normalised discounted cumulative gain of the first ten, every right answer counting 1
    ndcg_10: float
    # Whether a right answer is among the first three
    top_3: float
    # 1 if one of the first five sessions has an answer; None if documents have no sessions
    session_5: float | None


@dataclass(frozen=True, slots=True)
class Means:
    questions: int
    recall_5: float
    recall_10: float
    mrr: float
    ndcg_10: float
    top_3: float
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
        _ndcg(question, ids),
        float(first is not None and first <= 3),
        float(not question.sessions.isdisjoint(sessions)) if question.sessions else None,
    )


def _recall(question: Question, ids: Sequence[int]) -> float:
    return len(question.answers.intersection(ids)) / len(question.answers)


def _ndcg(question: Question, ids: Sequence[int]) -> float:
    found = sum(1 / log2(rank + 1) for rank, hit in enumerate(ids, 1) if hit in question.answers)
    return found / sum(1 / log2(rank + 1) for rank in range(1, min(len(question.answers), DEEPEST) + 1))


def interval(scored: Sequence[Scored], value: Callable[[int], float]) -> Interval:
    """Return the 95 % bootstrap interval of a mean over questions, resampled by their groups.

    Args:
        scored: the questions.
        value: of the question at an index.
    """
    return interval_of([(score.question.group, value(index)) for index, score in enumerate(scored)])


def interval_of(pairs: Sequence[tuple[str, float]]) -> Interval:
    """Return the 95 % bootstrap interval of a mean of values, resampled by their groups; one without is its own."""
    groups: dict[str, list[float]] = defaultdict(list)
    for index, (group, number) in enumerate(pairs):
        groups[group or str(index)].append(number)
    totals = [(sum(values), len(values)) for values in groups.values()]
    chance = random.Random(0)  # noqa: S311 - the same on every run
    resampled = (chance.choices(totals, k=len(totals)) for _ in range(_RESAMPLED))
    ordered = sorted(sum(total for total, _ in sample) / sum(count for _, count in sample) for sample in resampled)
    return ordered[_RESAMPLED // 40], ordered[-_RESAMPLED // 40 - 1]


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
        _mean([score.ndcg_10 for score in scored]),
        _mean([score.top_3 for score in scored]),
        _mean(with_sessions) if with_sessions else None,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
