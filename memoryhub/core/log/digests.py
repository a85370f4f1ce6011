"""The two digests of an event: one of its payload, one that chains it to all before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from memoryhub.core.errors import Invalid

GENESIS = "0" * 64
"""The digest that stands before the first event."""

HEADER = (
    "position",
    "event_id",
    "project_id",
    "session_id",
    "turn_id",
    "stream_id",
    "stream_seq",
    "event_type",
    "event_version",
    "occurred_at",
    "actor",
    "source",
    "idempotency_key",
    "trace_id",
)
"""The columns that the chain protects beside the payload's digest, in the order in which they are hashed."""


def canonical_json(value: Any) -> str:
    """Return the one JSON text of ``value``: sorted keys, no spaces, UTF-8 as it is."""
    return _encode(value)


def new_payload_json(value: Any) -> str:
    """Return the canonical JSON of a payload that is about to be kept.

    Raises:
        Invalid: it holds NaN or an infinite number, which no other reader of JSON takes.
    """
    try:
        return _encode_new(value)
    except ValueError as error:
        raise Invalid("NaN and infinite numbers cannot be kept; send a finite number, or leave it out") from error


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
# What an older hub has kept is encoded again as it was, or its digests would differ.
_encode_new = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def payload_digest(salt: str, payload_json: str) -> str:
    """Return the digest that stays when a payload is erased; the salt keeps a short text from being guessed."""
    return hashlib.sha256(bytes.fromhex(salt) + payload_json.encode()).hexdigest()


def chain_digest(previous: str, header: Sequence[Any], payload: str) -> str:
    """Return the digest of an event and, through ``previous``, of all events before it."""
    text = canonical_json(list(header))
    return hashlib.sha256(f"{previous}\n{text}\n{payload}".encode()).hexdigest()
