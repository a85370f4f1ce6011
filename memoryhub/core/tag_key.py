"""The key by which a store's tags are made: derived from one that lies in the home folder, and in no store."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache

from memoryhub import env
from memoryhub.core.routing import current_alias
from memoryhub.core.sanitize import tag_key_from
from memoryhub.core.secret_files import REDACTION_KEY, read_or_create_secret

_masters: dict[str, str] = {}


@tag_key_from
def current_tag_key() -> bytes:
    """Return the key of the current store; empty where none is current."""
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
