"""Measured amounts, their units, and baselines: the amounts for the same work without the hub."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

BARE = "bare sqlite3"


class Unit(StrEnum):
    MILLISECONDS = "ms"
    PER_SECOND = "/s"
    BYTES = "bytes"
    MEGABYTES = "MB"
    TOKENS = "tokens"
    TOOLS = "tools"

    @property
    def more_is_better(self) -> bool:
        return self is Unit.PER_SECOND


@dataclass(frozen=True, slots=True)
class Amount:
    value: float
    p95: float | None = None
    p99: float | None = None
    # The fastest sample, least affected by other load
    best: float | None = None
    samples: int = 1


def latency(seconds: Sequence[float]) -> Amount:
    """Return the percentiles of times, given in seconds, in milliseconds.

    Raises:
        ValueError: nothing was measured.
    """
    if not seconds:
        raise ValueError("nothing was measured")
    ordered = sorted(seconds)
    p50, p95, p99 = (1000 * _percentile(ordered, share) for share in (0.5, 0.95, 0.99))
    return Amount(p50, p95, p99, 1000 * ordered[0], len(ordered))


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest rank: a measured time, not an interpolated one."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Figure:
    # ``measure.variant``, such as ``write.stdio``
    key: str
    label: str
    unit: Unit
    amount: Amount
    # Memories in the store, if it matters
    size: int | None = None
    baseline: Amount | None = None
    baseline_label: str = ""

    @property
    def ratio(self) -> float | None:
        """The cost as a multiple of the baseline's; inverted for rates."""
        if self.baseline is None:
            return None
        pair = (self.baseline.value, self.amount.value)
        over, under = pair if self.unit.more_is_better else pair[::-1]
        return over / under


@dataclass(frozen=True, slots=True)
class Failure:
    key: str
    size: int | None
    reason: str


@dataclass(slots=True)
class Results:
    machine: dict[str, str | int | float]
    figures: list[Figure] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
