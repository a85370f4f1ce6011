"""The hub's one clock. Tests freeze it; nothing else asks the system for the time of an event."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache

_frozen: ContextVar[datetime | None] = ContextVar("frozen_clock", default=None)


def now() -> datetime:
    """Return the time in UTC, cut to milliseconds (the log keeps no more)."""
    moment = _frozen.get() or datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def to_text(moment: datetime) -> str:
    """Return ``2026-11-20T08:30:00.000Z``: fixed width, so that text order is time order."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


@lru_cache(maxsize=256)
def from_text(text: str) -> datetime:
    """Read what ``to_text`` wrote, or any ISO 8601 time; a time without a zone is UTC.

    Raises:
        ValueError: the text is no ISO 8601 time.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


@contextmanager
def frozen(moment: datetime) -> Iterator[None]:
    """Hold the clock at ``moment`` inside the block."""
    token = _frozen.set(moment)
    try:
        yield
    finally:
        _frozen.reset(token)
