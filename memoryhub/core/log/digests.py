"""The two digests of an event: of its payload, and of its header chained to all events before it (decision 1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from memoryhub.core.errors import Invalid

# The chain digest before the first event.
GENESIS = "0" * 64

# The columns in the chain digest, in the order in which they are hashed. The payload enters by its digest, so it can
# be erased (decision 6).
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


canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
# Payloads of older versions may contain NaN; they must be encoded as they were, or their digests would differ.
_encode_new = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def new_payload_json(value: Any) -> str:
    try:
        return _encode_new(value)
    except ValueError as error:
        raise Invalid("NaN and infinite numbers cannot be stored; send a finite number, or leave it out") from error


def payload_digest(salt: str, payload_json: str) -> str:
    """Return the SHA-256 of salt and payload. The salt keeps a short erased text from being guessed."""
    return hashlib.sha256(bytes.fromhex(salt) + payload_json.encode()).hexdigest()


def chain_digest(previous: str, header: Sequence[Any], payload: str) -> str:
    text = canonical_json(list(header))
    return hashlib.sha256(f"{previous}\n{text}\n{payload}".encode()).hexdigest()
