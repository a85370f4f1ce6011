"""The hub's only clock for events; tests freeze it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache

_FILE_STAMP = "%Y%m%dT%H%M%S%f"
_FILE_STAMP_LENGTH = len("20261120T083000000")

_frozen: ContextVar[datetime | None] = ContextVar("frozen_clock", default=None)


def now() -> datetime:
    """Return the time in UTC, truncated to milliseconds as in the log."""
    moment = _frozen.get() or datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def to_text(moment: datetime) -> str:
    """Return ``2026-11-20T08:30:00.000Z``: fixed width, so that text order is time order."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def file_stamp() -> str:
    """Return the time for the name of a file: ``20261120T083000000`` in UTC, so that text order is time order."""
    return now().strftime(_FILE_STAMP)[:-3]


def from_file_stamp(name: str) -> datetime:
    """Return the time at the start of a file's name. Raises ValueError if there is none."""
    return datetime.strptime(name[:_FILE_STAMP_LENGTH], _FILE_STAMP).replace(tzinfo=UTC)


@lru_cache(maxsize=256)
def from_text(text: str) -> datetime:
    """Parse any ISO 8601 time; without a zone it is UTC. Raises ValueError outside the years 1 to 9999."""
    return in_utc(datetime.fromisoformat(text))


def in_utc(moment: datetime) -> datetime:
    """Convert to UTC; a time without a zone is in UTC already."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the time must be in the years 1 to 9999 of UTC") from error


@contextmanager
def frozen(moment: datetime) -> Iterator[None]:
    token = _frozen.set(moment)
    try:
        yield
    finally:
        _frozen.reset(token)
