"""Hold memory out of a share of the sessions, to measure what it is worth (decision 62)."""

from __future__ import annotations

import hashlib
import json

from memoryhub.config.current_settings import project_settings
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store

_BEGUN = (
    "SELECT e.payload_json FROM sessions_app_session s JOIN raw_events e ON e.position = s.id "
    "WHERE s.session_id = %s AND e.payload_json IS NOT NULL"
)


def assign(session_id: str) -> bool | None:
    """Return whether memory is held out of a new session; None while the project holds out none."""
    percent = project_settings().held_out_percent
    return share_of(session_id) < percent / 100 if percent else None


def share_of(session_id: str) -> float:
    """Return a number from 0 to 1 that depends only on the project and the session's name."""
    key = hashlib.sha256(str(current_store().name).encode()).digest()
    digest = hashlib.blake2b(session_id.encode(), key=key, digest_size=8, person=b"held-out").digest()
    return int.from_bytes(digest) / 2**64


def is_held_out(session_id: str) -> bool:
    """Return whether the event that started a session records that memory is held out of it."""
    begun = rows.fetch(_BEGUN, [session_id]) if session_id else []
    return any(json.loads(payload).get("held_out") is True for (payload,) in begun)
