"""The tag that stands where a secret was: ``[REDACTED:<type>:<4 hex>]``."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

_START = "[REDACTED:"
_LONGEST = 46
"""A type of up to 40 characters, a colon and four digits, and the bracket."""
_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-:")
_DIGITS = 4


def tag(kind: str, secret: str, key: bytes) -> str:
    """Return the tag of a secret: the same one for the same secret and key; without a key, the same one for all."""
    if not key:
        return f"{_START}{kind}]"
    digest = hmac.new(key, secret.encode(errors="replace"), hashlib.sha256).hexdigest()
    return f"{_START}{kind}:{digest[:_DIGITS]}]"


def tag_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the place of each tag."""
    start = text.find(_START)
    while start >= 0:
        first = start + len(_START)
        end = text.find("]", first, first + _LONGEST)
        if end > first and _CHARACTERS.issuperset(text[first:end]):
            yield start, end + 1
        start = text.find(_START, max(first, end))
