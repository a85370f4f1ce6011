"""A copy of a store that is made from its log alone: events up to a position, and the read models that follow.

It is in a file of its own, so the store itself is only read, and nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from django.db import IntegrityError, transaction

from memoryhub.core.errors import Damaged
from memoryhub.core.events.projection import apply
from memoryhub.core.log.append import COLUMNS
from memoryhub.core.log.read import head, read_all
from memoryhub.core.stores import files, rows
from memoryhub.core.stores.routing import current_alias, require_current_alias

Progress = Callable[[int], None]

LIVE = "live"
"""The name of the store that is copied, inside the connection of its copy."""

_ALIAS = "store:view:being-made"
_PRAGMAS = (
    "PRAGMA journal_mode=OFF",
    "PRAGMA synchronous=OFF",
    "PRAGMA cache_size=-32000",
)
"""A copy that was not finished is thrown away, so nothing guards it against a crash."""

_PROGRESS_EVENTS = 2000
_COPIED_AT_ONCE = 5000
"""Events a statement; SQLite keeps in memory what would undo one."""

_TAKE = (
    f"INSERT INTO raw_events ({', '.join(COLUMNS)}) SELECT {', '.join(COLUMNS)} FROM {LIVE}.raw_events "
    "WHERE position > %s AND position <= %s ORDER BY position"
)


@contextmanager
def open_copy(path: Path) -> Iterator[None]:
    """Make the copy at ``path`` current; it begins as a copy of the template, or of another copy."""
    with files.connected(path, _ALIAS):
        token = current_alias.set(_ALIAS)
        try:
            for pragma in _PRAGMAS:
                rows.execute(pragma)
            yield
        finally:
            current_alias.reset(token)


@contextmanager
def attached(source: Path, *, write: bool = False) -> Iterator[None]:
    """Let statements of the current copy see the store that it is made of."""
    rows.execute(f"ATTACH DATABASE %s AS {LIVE}", [f"file:{quote(str(source))}?mode={'rw' if write else 'ro'}"])
    try:
        rows.execute(f"PRAGMA {LIVE}.synchronous=FULL")
        _prepare_again()
        yield
    finally:
        rows.execute(f"DETACH DATABASE {LIVE}")


def _prepare_again() -> None:
    """Have every statement prepared again, which a DETACH does and an ATTACH does not.

    A BEGIN IMMEDIATE that was prepared before would lock the copy alone, and others could write to the store meanwhile.
    """
    rows.execute("ATTACH DATABASE ':memory:' AS spare")
    rows.execute("DETACH DATABASE spare")


def take_events(up_to: int) -> int:
    """Copy the events that the current copy lacks, and return the position it had; needs ``attached``.

    Raises:
        Damaged: positions are missing, or an id occurs twice; a log takes no such events.
    """
    known = head()[0]
    try:
        for start in range(known, up_to, _COPIED_AT_ONCE):
            rows.execute(_TAKE, [start, min(start + _COPIED_AT_ONCE, up_to)])
    except IntegrityError as error:
        raise Damaged(
            f"the log cannot be copied: {error}; `memory-hub doctor` says where it is damaged, and how to go on"
        ) from error
    return known


def apply_events(after: int, progress: Progress = lambda _: None) -> int:
    """Apply the current copy's events behind ``after`` to its read models, and return how many there were."""
    count = 0
    with transaction.atomic(using=require_current_alias()), rows.gathering():
        for event in read_all(after=after):
            apply(event)
            count += 1
            if count % _PROGRESS_EVENTS == 0:
                progress(count)
    return count


def follow(source: Path, *, up_to: int, progress: Progress = lambda _: None) -> int:
    """Bring the current copy from where it is to the position ``up_to``; return how many events that took."""
    with attached(source):
        known = take_events(up_to)
    return apply_events(known, progress)
