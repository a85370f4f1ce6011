"""Identifiers and randomness in one place, so that tests can seed them."""

from __future__ import annotations

import os
import time
import uuid

_SHORT_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def random_bytes(count: int) -> bytes:
    return os.urandom(count)


def uuid7() -> str:
    """Return a time-ordered UUID (RFC 9562, version 7)."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | int.from_bytes(random_bytes(10))
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def time_of(event_id: str) -> float:
    """Return the seconds since 1970 at which a UUID of version 7 was made."""
    return (uuid.UUID(event_id).int >> 80) / 1000


def short_id() -> str:
    # 50 bits in ten characters, for names that people and models copy, such as a session's.
    value = int.from_bytes(random_bytes(7))
    return "".join(_SHORT_ALPHABET[value >> shift & 31] for shift in range(0, 50, 5))
