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
        ValueError: the text is no ISO 8601 time, or outside the years 1 to 9999.
    """
    return in_utc(datetime.fromisoformat(text))


def in_utc(moment: datetime) -> datetime:
    """Return the moment in UTC; one without a zone is in UTC already.

    Raises:
        ValueError: no year from 1 to 9999 holds it, which near either end depends on the zone.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the time must be in the years 1 to 9999 of UTC") from error


@contextmanager
def frozen(moment: datetime) -> Iterator[None]:
    """Hold the clock at ``moment`` inside the block."""
    token = _frozen.set(moment)
    try:
        yield
    finally:
        _frozen.reset(token)
