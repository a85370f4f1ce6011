"""The hub's only clock for times; tests freeze it. Durations within a process come from ``time.monotonic``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from functools import lru_cache

_FILE_STAMP = "%Y%m%dT%H%M%S%f"
_FILE_STAMP_LENGTH = len("20261120T083000000")

# More than a wrong time zone. What lies within it comes to pass soon enough
MISDATED_AFTER = timedelta(days=2)

_frozen: ContextVar[datetime | None] = ContextVar("frozen_clock", default=None)


def now() -> datetime:
    """Return the time in UTC, truncated to milliseconds as in the log."""
    moment = _frozen.get() or datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def now_ns() -> int:
    """Return the time in nanoseconds since 1970, as files have it."""
    return time.time_ns() if _frozen.get() is None else int(now().timestamp() * 1e9)


def is_misdated(moment: datetime) -> bool:
    """Return whether a stored time lies so far ahead that the clock must have been wrong when it was written."""
    return moment > now() + MISDATED_AFTER


def to_text(moment: datetime) -> str:
    """Return ``2026-11-20T08:30:00.000Z``: fixed width, so that text order is time order."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def file_stamp(moment: datetime | None = None) -> str:
    """Return a time, by default now, for a file's name: ``20261120T083000000`` in UTC; text order is time order."""
    return (moment or now()).strftime(_FILE_STAMP)[:-3]


def from_file_stamp(name: str) -> datetime:
    """Return the time at the start of a file's name. Raises ValueError if there is none."""
    return datetime.strptime(name[:_FILE_STAMP_LENGTH], _FILE_STAMP).replace(tzinfo=UTC)


@lru_cache(maxsize=256)
def from_text(text: str) -> datetime:
    """Parse any ISO 8601 time; without a zone it is UTC. Raises ValueError outside the years 1 to 9999."""
    return in_utc(datetime.fromisoformat(text))


def machine_zone() -> str:
    """Return the name of this machine's time zone, which ``TZ`` overrides; "UTC" if it has none that Python knows."""
    import warnings
    from zoneinfo import ZoneInfo

    from tzlocal import get_localzone_name

    try:
        with warnings.catch_warnings(action="ignore"):  # every command would print them
            name = get_localzone_name()
        return "UTC" if name in (None, "Etc/UTC") else ZoneInfo(name).key
    except (KeyError, ValueError, OSError):  # settings that contradict each other, or no such file
        return "UTC"


def from_input(text: str) -> datetime:
    """Parse a time as people write it: without a zone it is in theirs, and a date is the beginning of the day."""
    return from_viewer(datetime.fromisoformat(text))


def from_viewer(moment: datetime) -> datetime:
    """Convert to UTC; a time without a zone is in the viewer's: the browser's on pages, else this machine's."""
    from django.utils import timezone

    if moment.tzinfo is None:
        moment = timezone.make_aware(moment)
    return in_utc(moment)


def day(moment: datetime | str) -> str:
    """Return the day in the viewer's zone, such as ``2026-11-20``."""
    return minute(moment)[:10]


def minute(moment: datetime | str) -> str:
    """Return the time in the viewer's zone, such as ``2026-11-20T08:30``.

    A time at midnight UTC came from a record that gives only a day, which is the same in every zone.
    """
    from django.utils import timezone

    exact = from_text(moment) if isinstance(moment, str) else in_utc(moment)
    if exact.time() == time_of_day.min:
        return exact.isoformat()[:16]
    try:
        return timezone.localtime(exact).isoformat()[:16]
    except OverflowError:  # the first or the last day of the calendar
        return exact.isoformat()[:16]


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
