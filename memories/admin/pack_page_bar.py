"""A pack's tokens as a bar: one part a section, and what is free of the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memories.pack.compose import Filled
from memories.pack.service import Pack
from memoryhub.core.tokens import estimate_tokens

WIDTH = 1000
"""Of the drawing, whatever room it has."""

FRAME = "frame"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the bar, and the line below it that says what it is."""

    name: str
    title: str
    x: float
    width: float
    tokens: int
    items: int
    left_out: int
    more: str


@dataclass(frozen=True, slots=True)
class TokenBar:
    """The whole bar."""

    parts: list[Part]
    used: int
    budget: int
    free: Part

    @property
    def percent(self) -> int:
        """How much of the budget is used."""
        return round(100 * self.used / self.budget)


def _size(section: Filled) -> int:
    """Return what a section takes of the text; what was set aside for it may be a little more."""
    return estimate_tokens("\n".join(section.lines()))


def token_bar(pack: Pack, budget: int) -> TokenBar:
    """Return the bar of a pack; its parts' widths add up to the tokens of the text over its budget."""
    used = estimate_tokens(pack.text)
    scale = WIDTH / max(budget, used)
    rows: list[dict[str, Any]] = [
        {"name": each.section.name, "title": each.section.title, "tokens": _size(each), "items": len(each.items)}
        | {"left_out": each.left_out, "more": each.section.more}
        for each in pack.body.sections
    ]
    frame = used - sum(row["tokens"] for row in rows)
    rows.append(
        {"name": FRAME, "title": "Head and foot", "tokens": max(frame, 0), "items": 0, "left_out": 0, "more": ""}
    )
    parts, x = [], 0.0
    for row in rows:
        parts.append(Part(**row, x=round(x, 1), width=round(row["tokens"] * scale, 1)))
        x += row["tokens"] * scale
    left = max(0, budget - used)
    free = Part("free", "Free", round(x, 1), round(left * scale, 1), left, 0, 0, "")
    return TokenBar(parts, used, budget, free)
