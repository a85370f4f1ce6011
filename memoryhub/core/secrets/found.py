"""What a pattern has found, for the checks to judge."""

from __future__ import annotations

from dataclasses import dataclass

from .pattern import Span
from .rule import Rule


@dataclass(frozen=True, slots=True)
class Hit:
    """A secret: the rule that found it and its place in the bytes."""

    rule: Rule
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Found:
    """A match before it is judged: where it stands, and which part of it may be the secret."""

    data: bytes
    rule: Rule
    start: int
    end: int
    limit: int
    """Where the text that may be read ends."""

    @property
    def span(self) -> Span:
        """The place of what may be the secret."""
        return self.start, self.end

    @property
    def secret(self) -> str:
        """What may be the secret, as text."""
        return self.data[self.start : self.end].decode(errors="replace")

    @property
    def before(self) -> bytes:
        """Up to 40 bytes that stand before it."""
        return self.data[max(0, self.start - 40) : self.start]

    @property
    def after(self) -> bytes:
        """The byte that follows it, or none."""
        return self.data[self.end : min(self.end + 1, self.limit)]


def apart(hits: list[Hit], others: list[Hit]) -> list[Hit]:
    """Return the hits that overlap with none of the others; both lists are in order, and in neither do two overlap."""
    free: list[Hit] = []
    place = 0
    for hit in hits:
        while place < len(others) and others[place].end <= hit.start:
            place += 1
        if place == len(others) or hit.end <= others[place].start:
            free.append(hit)
    return free
