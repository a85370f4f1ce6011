"""Floors, which a figure must not miss, and goals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from benchmarks.speed.figures import Figure


class Verdict(StrEnum):
    GOAL = "goal"
    FLOOR = "floor"
    MISS = "MISSED"


@dataclass(frozen=True, slots=True)
class Target:
    floor: float
    goal: float
    on: str = "value"

    def verdict(self, figure: Figure) -> Verdict | None:
        """Judge a figure; None if it lacks the amount."""
        amount = figure.ratio if self.on == "ratio" else getattr(figure.amount, self.on)
        if amount is None:
            return None
        sign = -1 if figure.unit.more_is_better and self.on != "ratio" else 1
        if sign * amount <= sign * self.goal:
            return Verdict.GOAL
        return Verdict.FLOOR if sign * amount <= sign * self.floor else Verdict.MISS


def _search(floor: tuple[float, float], goal: tuple[float, float]) -> tuple[Target, ...]:
    return Target(floor[0], goal[0]), Target(floor[1], goal[1], on="p95")


_START = (Target(100, 40),)
_CALL = (Target(300, 150),)
_CALL_ALONE = (Target(1200, 700),)

_ALWAYS: dict[str, tuple[Target, ...]] = {
    **{f"start.{step}.hub.{era}": _START for step in ("opening", "lists") for era in ("modern", "handshake")},
    **{f"start.call.hub.{era}": _CALL for era in ("modern", "handshake")},
    **{f"start.call.alone.{era}": _CALL_ALONE for era in ("modern", "handshake")},
    "tools.core.count": (Target(8, 8),),
    "tools.core.tokens": (Target(1500, 1000),),
    "write.stdio": (Target(6, 3),),
    **{f"write.{door}": (Target(6, 2.5, on="ratio"),) for door in ("service", "cpu")},
    "bulk": (Target(2000, 5000),),
    "stores.open": (Target(5, 2),),
    "stores.switch": (Target(1, 0.1),),
    **{f"hook.{state}": (Target(3, 1.5, on="ratio"),) for state in ("running", "stopped")},
    "memory": (Target(25, 15),),
    "rebuild": (Target(3000, 10_000),),
    "verify": (Target(15_000, 25_000),),
}

_AT_SIZE: dict[tuple[str, int], tuple[Target, ...]] = {
    ("search.stdio", 1_000): _search((5, 10), (2, 4)),
    ("search.stdio", 10_000): _search((8, 20), (4, 10)),
    ("search.stdio", 100_000): _search((30, 120), (12, 20)),
    ("search.hybrid", 1_000): (Target(20, 10),),
    ("search.hybrid", 10_000): (Target(30, 13),),
    ("search.hybrid", 100_000): (Target(60, 20),),
    ("pack.stdio", 100_000): (Target(150, 50, on="p95"),),
    ("search.stdio", 1_000_000): _search((200, 800), (60, 250)),
}


def targets_of(figure: Figure) -> tuple[Target, ...]:
    return _AT_SIZE.get((figure.key, figure.size or 0)) or _ALWAYS.get(figure.key, ())


def verdict_of(figure: Figure) -> Verdict | None:
    """Return a figure's worst verdict, or None if it has no target."""
    found = [verdict for target in targets_of(figure) if (verdict := target.verdict(figure))]
    return max(found, key=list(Verdict).index, default=None)
