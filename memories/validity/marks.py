"""What is known against an entry at the moment it is given, or about where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MarkKind(StrEnum):
    # The code that it is about is not as it was
    CHANGED = "changed"
    GONE = "gone"
    # It was learnt on a branch that is not merged
    BRANCH = "branch"
    AMENDED = "amended"
    CONTRADICTED = "contradicted"
    # Its check failed
    FAILED = "failed"
    # A web page, the output of a tool or an import, which no person accepted
    ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class Mark:
    kind: MarkKind
    # A clause for a line of an answer: ``src/auth.py:10-24 has changed since``
    text: str
    # Factor on the score of a search, above 0 to 1
    weight: float = 1.0
    # Whether recall and notes leave the entry out
    withheld: bool = False

    def data(self) -> dict[str, str]:
        return {"kind": self.kind.value, "text": self.text}
