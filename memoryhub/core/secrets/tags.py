"""The tag that replaces a secret: ``[REDACTED:<type>:<4 hex>]``."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from functools import lru_cache

from memoryhub import env
from memoryhub.core.secret_files import REDACTION_KEY, read_or_create_secret
from memoryhub.core.secrets.sanitize import tag_key_from
from memoryhub.core.stores.routing import current_alias

_masters: dict[str, str] = {}


@tag_key_from
def current_tag_key() -> bytes:
    alias = current_alias.get()
    if alias is None:
        return b""
    return _derived(_master(env.home_text()), alias)


@lru_cache(maxsize=256)
def _derived(master: str, alias: str) -> bytes:
    return hmac.new(master.encode(), alias.encode(), hashlib.sha256).digest()


def _master(home: str) -> str:
    if home not in _masters:
        _masters[home] = read_or_create_secret(REDACTION_KEY)
    return _masters[home]


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
