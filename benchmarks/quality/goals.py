"""Floors and goals of search quality, with and without embeddings."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.quality.scores import Means
from benchmarks.quality.stages import Stage
from benchmarks.speed.goals import Verdict


@dataclass(frozen=True, slots=True)
class Target:
    floor: float | None
    goal: float


# By set and mean
_OF_WORDS: dict[str, dict[str, Target]] = {
    "conversations": {
        "recall_5": Target(0.60, 0.70),
        "recall_10": Target(0.69, 0.78),
        "session_5": Target(None, 0.95),
    },
    "functions": {"recall_10": Target(0.68, 0.73)},
    "languages": {"top_3": Target(None, 0.95)},
}

_WITH_MEANING: dict[str, dict[str, Target]] = {
    "conversations": {
        "recall_5": Target(0.63, 0.72),
        "recall_10": Target(0.72, 0.80),
        "session_5": Target(None, 0.95),
    },
    "functions": {"recall_10": Target(0.76, 0.82)},
    "languages": {"top_3": Target(None, 0.95)},
}


def targets_of(key: str, stage: Stage) -> dict[str, Target]:
    return (_WITH_MEANING if stage.blended else _OF_WORDS).get(key, {})


def verdicts(key: str, stage: Stage, found: Means) -> dict[str, Verdict]:
    return {name: _verdict(getattr(found, name), target) for name, target in targets_of(key, stage).items()}


def _verdict(value: float, target: Target) -> Verdict:
    if value >= target.goal:
        return Verdict.GOAL
    return Verdict.FLOOR if target.floor is not None and value >= target.floor else Verdict.MISS
