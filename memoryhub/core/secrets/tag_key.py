"""The key of the current store's tags, derived from ``redaction.key``."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache

from memoryhub import env
from memoryhub.core.secret_files import REDACTION_KEY, read_or_create_secret
from memoryhub.core.stores.routing import current_alias

_masters: dict[str, str] = {}


def current_tag_key() -> bytes:
    """Return the key; empty without a store."""
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
