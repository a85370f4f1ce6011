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
