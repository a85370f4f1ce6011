"""The key by which a store's tags are made: derived from one that lies in the home folder, and in no store."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache

from memoryhub import env
from memoryhub.core.routing import current_alias
from memoryhub.core.sanitize import tag_key_from

KEY_FILE = "redaction.key"
_masters: dict[str, str] = {}


@tag_key_from
def current_tag_key() -> bytes:
    """Return the key of the current store; empty where none is current."""
    alias = current_alias.get()
    if alias is None:
        return b""
    master = _master(env.home_text())
    return _derived(master, alias) if master else b""


@lru_cache(maxsize=256)
def _derived(master: str, alias: str) -> bytes:
    return hmac.new(master.encode(), alias.encode(), hashlib.sha256).digest()


def _master(home: str) -> str:
    """Return the home folder's key; while another process is still writing it, nothing, which is not remembered."""
    if not _masters.get(home):
        _masters[home] = env.read_or_create_secret(KEY_FILE)
    return _masters[home]
