"""What was taken out of a text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What was taken out: its type, the rule that found it, and its place in the original text."""

    type: str
    rule: str
    start: int
    end: int
