"""What sanitising needs of the current store: the key of its tags, its custom rules, and the secrets that it has seen.

The secrets are keyed digests in ``store_meta``, never the values. Sanitising reads them before an event is appended;
projectors and a rebuild do not. The digests say nothing without ``redaction.key``. If they are lost, a bare value is
found only where a name or its form reveals it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from django.db import transaction

from memoryhub.core.origin import current_origin
from memoryhub.core.secret_files import REDACTION_KEY, read_or_create_secret
from memoryhub.core.secrets.catalogue import NO_RULES, CustomRules
from memoryhub.core.secrets.cleaning import NOTHING_KNOWN, Context, Known, digest, is_memorable
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import TEXTS, json_list
from memoryhub.core.stores.routing import (
    StoreCache,
    StoreRequest,
    current_request,
    require_current_alias,
    require_request,
)

_PREFIX = "secret:"
# Secrets of a store that wait for its next event
_MOST_PENDING = 10_000

# Settings are read above core, which reads the rules of a store through this function
_rule_sources: list[Callable[[], CustomRules]] = []
# Rules that are tried, or not saved yet: they must not reach other threads
_tried_rules: ContextVar[CustomRules | None] = ContextVar("tried_secret_rules", default=None)
_masters: dict[str, str] = {}
_pending: dict[StoreRequest, dict[str, str]] = {}


def custom_rules_from(source: Callable[[], CustomRules]) -> Callable[[], CustomRules]:
    """Register the function that reads the current store's custom rules."""
    _rule_sources[:] = [source]
    return source


@contextmanager
def use_rules(rules: CustomRules) -> Iterator[None]:
    """Sanitise with other rules than the current store's, to try them or before they are saved."""
    token = _tried_rules.set(rules)
    try:
        yield
    finally:
        _tried_rules.reset(token)


def current_context() -> Context:
    """Return what sanitising needs now; without a store, only the rule pack applies."""
    request = current_request()
    rules = _tried_rules.get()
    if request is None:
        return Context(b"", rules or NO_RULES)
    if rules is None:
        return _contexts.get(request)
    return Context(current_tag_key(), rules, _read_secrets(None))


def _read_context(before: Context | None) -> Context:
    rules = _rule_sources[0]() if _rule_sources else NO_RULES
    return Context(current_tag_key(), rules, _read_secrets(before and before.seen))


_contexts = StoreCache(_read_context)


def forget_rules() -> None:
    """Read the rules of all stores again at their next use, after a change."""
    _contexts.forget()


def forget() -> None:
    """Read the digests again at their next use; those not stored yet are lost."""
    _contexts.forget()
    _pending.clear()


def current_tag_key() -> bytes:
    """Return the key of the current store's tags, derived from ``redaction.key``; empty without a store."""
    request = current_request()
    if request is None:
        return b""
    if request.home not in _masters:
        _masters[request.home] = read_or_create_secret(REDACTION_KEY)
    return _derived_key(_masters[request.home], request.alias)


@lru_cache(maxsize=256)
def _derived_key(master: str, alias: str) -> bytes:
    return hmac.new(master.encode(), alias.encode(), hashlib.sha256).digest()


def _read_secrets(before: Known | None) -> Known:
    stored = rows.fetch("SELECT key, value FROM store_meta WHERE key LIKE %s", [f"{_PREFIX}%"])
    digests = {key.removeprefix(_PREFIX): kind for key, kind in stored} | _pending.get(require_request(), {})
    # The same object while nothing changes, because results are cached by it.
    if before is not None and before.digests == digests:
        return before
    return Known(digests=digests, key=current_tag_key()) if digests else NOTHING_KNOWN


def remember(values: Mapping[str, str]) -> None:
    """Keep secrets, each with its type, for the next event of the current store. Trying rules out keeps none."""
    memorable = [value for value in values if is_memorable(value)]
    if not memorable or _tried_rules.get() is not None:
        return
    request = current_request()
    if request is None:
        return
    stored = _contexts.get(request).seen.digests
    key = current_tag_key()
    digests = {value: digest(value, key) for value in memorable}
    added = [value for value in memorable if digests[value] not in stored]
    if not added:
        return
    # A text may give the id of a session as a token. Events name the session by it.
    origin = current_origin()
    sql = f"SELECT DISTINCT session_id FROM raw_events WHERE session_id IN {TEXTS}"
    names = {origin.session_id, origin.actor, *rows.column(sql, [json_list(added)])}
    pending = _pending.setdefault(request, {})
    for value in added:
        if value not in names and len(pending) < _MOST_PENDING:
            pending[digests[value]] = values[value]
    _contexts.forget()


def store_pending() -> None:
    """Store the secrets found since the last event; requires an open transaction."""
    pending = _pending.get(require_request())
    if not pending:
        return
    stored = dict(pending)
    for digest_text, kind in stored.items():
        rows.put_meta(f"{_PREFIX}{digest_text}", kind)

    def forget_stored() -> None:
        for digest_text in stored:
            pending.pop(digest_text, None)

    transaction.on_commit(forget_stored, using=require_current_alias())
