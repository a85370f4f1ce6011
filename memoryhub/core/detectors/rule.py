"""What a rule is: where to look, what to match, and which part of it is the secret."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Span = tuple[int, int]
Refine = Callable[[re.Match[str]], Span | None]


def secret_group(match: re.Match[str]) -> Span | None:
    """Return the span of the named group that matched, or of the whole match where there is none."""
    return match.span(match.lastgroup or 0)


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret.

    The pattern is tried only where one of the ``keywords`` begins, so a text that holds none of
    them costs a substring search each; with ``any_case`` the keywords are lower case and found in
    any case. Patterns use neither lookaround nor back references nor unbounded repeats: every
    attempt is bounded, and any regular-expression engine can run them. ``refine`` gives the span
    to redact, or None where the match is no secret. The keyword must begin a word, unless
    ``inside_words``; ``not_after`` names further characters that may not come before it.
    """

    id: str
    type: str
    keywords: tuple[str, ...]
    pattern: re.Pattern[str]
    refine: Refine = secret_group
    any_case: bool = False
    inside_words: bool = False
    not_after: str = ""


def rule(
    name: str,
    pattern: str,
    *keywords: str,
    type: str = "",  # noqa: A002  (the word that findings and tags use)
    refine: Refine = secret_group,
    any_case: bool = False,
    inside_words: bool = False,
    not_after: str = "",
) -> Rule:
    """Return a rule; its type is its name unless another is given."""
    compiled = re.compile(pattern)
    return Rule(name, type or name, keywords, compiled, refine, any_case, inside_words, not_after)
