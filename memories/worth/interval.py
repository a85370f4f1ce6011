"""The confidence interval of a difference of two means, by Welch's method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean, variance

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float

    @property
    def contains_zero(self) -> bool:
        return self.low <= 0 <= self.high


def difference_interval(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of mean(first) - mean(second); the groups may differ in size and variance.

    None if it can't be computed: a group has fewer than two values, or no group has two different ones.
    """
    if min(len(first), len(second)) < 2:
        return None
    # Squared standard errors of both means
    errors = [variance(values) / len(values) for values in (first, second)]
    if not sum(errors):
        return None
    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(values) - 1) for error, values in zip(errors, (first, second), strict=True)
    )
    middle = fmean(first) - fmean(second)
    reach = t_quantile((1 + CONFIDENCE) / 2, freedom) * sqrt(sum(errors))
    return Interval(middle - reach, middle + reach)


def t_quantile(probability: float, freedom: float) -> float:
    """Return a quantile of Student's t, by its expansion around the normal one (Abramowitz and Stegun, 26.7.5).

    At 97.5 % it is 0.03 % too small at 4 degrees of freedom, and right to six digits from 19 on.
    """
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))
