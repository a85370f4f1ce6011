"""What a rule is: where to look, what to match, and which part of it is the secret."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Form(StrEnum):
    """How a rule is read at the place of its keyword."""

    AT = "at"
    """The pattern begins with the keyword."""
    AROUND = "around"
    """The pattern begins at most ``back`` bytes before the keyword, and holds it."""
    ALL = "all"
    """The pattern is searched for in all of the text, without a keyword; it must be one whose automaton is small."""
    VALUE = "value"
    """The keyword is in a name, and the pattern is that of the whole value which the name is given."""


@dataclass(slots=True, eq=False)
class Rule:
    """One kind of secret. All patterns are for RE2, on bytes; the first that is tried compiles it.

    The secret is the last group that matched, or all of the match where there is none. ``checks`` name functions of
    ``checks.py`` that may still say no, or move the ends of the secret.
    """

    id: str
    type: str
    form: Form
    keywords: tuple[bytes, ...]
    """Words of which one must be there; the search for all of them at once is what makes it fast."""
    any_case: bool = False
    """Whether the keywords, in lower case, are found in any case."""
    pattern: bytes = b""
    name: bytes = b""
    """Of a value's rule: what the name must match from the keyword on; empty where the keyword is enough."""
    entropy: float = 0.0
    """The least entropy of the secret, in bits a character."""
    checks: tuple[str, ...] = ()
    allow: tuple[bytes, ...] = ()
    """Patterns of what looks like such a secret and is none."""
    back: int = 0
    reach: int = 512
    """How many bytes from the keyword on are read at most."""
    inside: bool = False
    """Whether it may begin inside a word."""
    not_after: bytes = b""
    """Characters, besides letters and digits, that it may not follow."""

    @property
    def spaced(self) -> bool:
        """Whether the value may stand behind the name with only space between."""
        return "named-secret" in self.checks


def rule_of(data: dict[str, Any]) -> Rule:
    """Return the rule that a line of the pack describes."""
    return Rule(
        id=data["id"],
        type=data.get("type", data["id"]),
        form=Form(data.get("form", "at")),
        keywords=tuple(word.encode() for word in data["keywords"]),
        any_case=data.get("any_case", False),
        pattern=data.get("pattern", "").encode(),
        name=data.get("name", "").encode(),
        entropy=data.get("entropy", 0.0),
        checks=tuple(data.get("checks", ())),
        allow=tuple(pattern.encode() for pattern in data.get("allow", ())),
        back=data.get("back", 0),
        reach=data.get("reach", 512),
        inside=data.get("inside", False),
        not_after=data.get("not_after", "").encode(),
    )
