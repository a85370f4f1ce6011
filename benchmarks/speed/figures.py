"""What a measurement yields: an amount, its unit, and the amount that the same work costs without the hub."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

BARE = "bare sqlite3"


class Unit(StrEnum):
    """What an amount counts."""

    MILLISECONDS = "ms"
    PER_SECOND = "/s"
    BYTES = "bytes"
    MEGABYTES = "MB"
    TOKENS = "tokens"
    TOOLS = "tools"

    @property
    def more_is_better(self) -> bool:
        """Whether a higher amount is the better one."""
        return self is Unit.PER_SECOND


@dataclass(frozen=True, slots=True)
class Amount:
    """One amount; of a latency ``value`` is the median, and the others are there too."""

    value: float
    p95: float | None = None
    p99: float | None = None
    best: float | None = None
    """The fastest sample: what a busy machine disturbs least."""
    samples: int = 1


def latency(seconds: Sequence[float]) -> Amount:
    """Return the percentiles of measured times in milliseconds.

    Raises:
        ValueError: nothing was measured.
    """
    if not seconds:
        raise ValueError("nothing was measured")
    ordered = sorted(seconds)
    p50, p95, p99 = (1000 * _percentile(ordered, share) for share in (0.5, 0.95, 0.99))
    return Amount(p50, p95, p99, 1000 * ordered[0], len(ordered))


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest rank: a time that was measured, not one between two."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the report."""

    key: str
    """Such as ``write.stdio``: its measure, then what of it."""
    label: str
    unit: Unit
    amount: Amount
    size: int | None = None
    """Memories in the store; None where it does not matter."""
    baseline: Amount | None = None
    baseline_label: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times the baseline this costs: for times and sizes this over it, for rates it over this."""
        if self.baseline is None:
            return None
        pair = (self.baseline.value, self.amount.value)
        over, under = pair if self.unit.more_is_better else pair[::-1]
        return over / under


@dataclass(frozen=True, slots=True)
class Failure:
    """A measurement that could not be taken."""

    key: str
    size: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One function of a profile; seconds over all its calls."""

    function: str
    calls: int
    own_seconds: float
    total_seconds: float


@dataclass(slots=True)
class Results:
    """All that one run found."""

    machine: dict[str, str | int | float]
    figures: list[Figure] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    profile: list[ProfileRow] = field(default_factory=list)
