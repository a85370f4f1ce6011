"""The secrets that a store has seen, as keyed digests in ``store_meta``: never the values.

Sanitising reads them before an event is appended; projectors and a rebuild do not. The digests say nothing without
``redaction.key``. If they are lost, a bare value is found only where a name or its form reveals it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import islice

from django.db import transaction

from memoryhub import env
from memoryhub.core.origin import current_origin
from memoryhub.core.secrets.cleaning import NOTHING_KNOWN, Known, current_tag_key, digest, is_memorable
from memoryhub.core.secrets.sanitize import known_from
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import TEXTS, json_list, upsert
from memoryhub.core.stores.routing import current_alias, require_current_alias

_PREFIX = "secret:"
# Seconds. A secret that this process has found counts at once, one of another process within this time.
_CACHE_SECONDS = 1.0
_MAX_CACHED = 256
# Secrets of a store that wait for its next event
_MOST_PENDING = 10_000

_Place = tuple[str, str]
_cache: dict[_Place, tuple[float, Known]] = {}
_pending: dict[_Place, dict[str, str]] = {}


def _place() -> _Place:
    return env.home_text(), current_alias.get() or ""


def known_secrets() -> Known:
    """Return the secrets that the current store has seen; none if no store is current."""
    place = _place()
    if not place[1]:
        return NOTHING_KNOWN
    read_at, secrets = _cache.get(place, (0.0, None))
    if secrets is None or time.monotonic() - read_at > _CACHE_SECONDS:
        secrets = _read(secrets, _pending.get(place, {}))
        if len(_cache) >= _MAX_CACHED:
            _cache.clear()
        _cache[place] = time.monotonic(), secrets
    return secrets


def _read(before: Known | None, pending: dict[str, str]) -> Known:
    stored = rows.fetch("SELECT key, value FROM store_meta WHERE key LIKE %s", [f"{_PREFIX}%"])
    digests = {key.removeprefix(_PREFIX): kind for key, kind in stored} | pending
    # The same object while nothing changes, because results are cached by it.
    if before is not None and before.digests == digests:
        return before
    return Known(digests=digests, key=current_tag_key()) if digests else NOTHING_KNOWN


def _remember(values: Mapping[str, str]) -> None:
    place, key = _place(), current_tag_key()
    memorable = {digest(value, key): value for value in values if is_memorable(value)} if key else {}
    stored = known_secrets().digests if memorable else {}
    added = {each: value for each, value in memorable.items() if each not in stored}
    if not added:
        return
    pending, names = _pending.setdefault(place, {}), _names_among(list(added.values()))
    wanted = {each: values[value] for each, value in added.items() if value not in names}
    pending |= dict(islice(wanted.items(), max(0, _MOST_PENDING - len(pending))))
    _cache.pop(place, None)


# A text may give the id of a session as a token. Events name the session by it.
def _names_among(values: Sequence[str]) -> set[str]:
    origin = current_origin()
    sessions = rows.fetch(
        f"SELECT DISTINCT session_id FROM raw_events WHERE session_id IN {TEXTS}", [json_list(values)]
    )
    return {origin.session_id, origin.actor, *(session_id for (session_id,) in sessions)}


known_from(known_secrets, _remember)


def forget() -> None:
    """Read the digests again at their next use; those not stored yet are lost."""
    _cache.clear()
    _pending.clear()


def store_pending() -> None:
    """Store the secrets found since the last event; requires an open transaction."""
    place = _place()
    pending = _pending.get(place)
    if not pending:
        return
    stored = dict(pending)
    sql = upsert("store_meta", "key", ["value"])
    for digest_text, kind in stored.items():
        rows.execute(sql, [f"{_PREFIX}{digest_text}", kind])
    transaction.on_commit(lambda: _stored(place, stored), using=require_current_alias())


def _stored(place: _Place, digests: dict[str, str]) -> None:
    pending = _pending.get(place, {})
    for digest_text in digests:
        pending.pop(digest_text, None)
