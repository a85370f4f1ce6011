"""What an evaluation is judged by: for words alone, without a ranking by meaning beside them."""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub.benchmarking.goals import Verdict
from memoryhub.evaluation.scores import Means


@dataclass(frozen=True, slots=True)
class Target:
    """The least that is tolerable of a mean, and where we mean to be."""

    floor: float | None
    goal: float


TARGETS: dict[str, dict[str, Target]] = {
    "conversations": {
        "recall_5": Target(0.60, 0.65),
        "recall_10": Target(0.69, 0.74),
        "session_5": Target(None, 0.95),
    },
    "functions": {"recall_10": Target(0.68, 0.73)},
}
"""By the key of a set and the name of a mean."""


def verdicts(key: str, found: Means) -> dict[str, Verdict]:
    """Return which targets of a set are met, by the name of the mean."""
    return {name: _verdict(getattr(found, name), target) for name, target in TARGETS.get(key, {}).items()}


def _verdict(value: float, target: Target) -> Verdict:
    if value >= target.goal:
        return Verdict.GOAL
    return Verdict.FLOOR if target.floor is not None and value >= target.floor else Verdict.MISS
