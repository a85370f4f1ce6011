"""The tag that replaces a secret: ``[REDACTED:<type>:<4 hex>]``."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

_START = "[REDACTED:"
# A type of up to 40 characters, a colon, four digits and the bracket.
_LONGEST = 46
_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-:")
# Sixteen bits tell the tokens of one text apart without revealing a weak secret (decision 21).
_DIGITS = 4


def tag(kind: str, secret: str, key: bytes) -> str:
    """Return the tag of a secret: equal for equal secrets and keys; without a key, equal for all secrets."""
    if not key:
        return f"{_START}{kind}]"
    digest = hmac.new(key, secret.encode(errors="replace"), hashlib.sha256).hexdigest()
    return f"{_START}{kind}:{digest[:_DIGITS]}]"


def tag_spans(text: str) -> Iterator[tuple[int, int]]:
    start = text.find(_START)
    while start >= 0:
        first = start + len(_START)
        end = text.find("]", first, first + _LONGEST)
        if end > first and _CHARACTERS.issuperset(text[first:end]):
            yield start, end + 1
        start = text.find(_START, max(first, end))
