"""Build a copy of a store from its log, in a separate file; the store itself is only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from django.db import IntegrityError, transaction

from memoryhub.core.backends.sqlite import files
from memoryhub.core.errors import Damaged
from memoryhub.core.events.projection import apply, void_positions
from memoryhub.core.log.append import COLUMNS
from memoryhub.core.log.read import head, read_all
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import current_alias, require_current_alias

Progress = Callable[[int], None]

# The schema name of the original store in the connection of its copy.
LIVE = "live"

_ALIAS = "store:view:being-made"
# An unfinished copy is thrown away, so it needs no protection against a crash.
_PRAGMAS = (
    "PRAGMA journal_mode=OFF",
    "PRAGMA synchronous=OFF",
    "PRAGMA cache_size=-32000",
)

_PROGRESS_EVENTS = 200
# Events per statement; SQLite keeps the undo data of one statement in memory.
_COPIED_AT_ONCE = 5000

_TAKE = (
    f"INSERT INTO raw_events ({', '.join(COLUMNS)}) SELECT {', '.join(COLUMNS)} FROM {LIVE}.raw_events "
    "WHERE position > %s AND position <= %s ORDER BY position"
)


@contextmanager
def open_copy(path: Path) -> Iterator[None]:
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
    rows.execute(f"ATTACH DATABASE %s AS {LIVE}", [f"file:{quote(str(source))}?mode={'rw' if write else 'ro'}"])
    try:
        rows.execute(f"PRAGMA {LIVE}.synchronous=FULL")
        _prepare_again()
        yield
    finally:
        rows.execute(f"DETACH DATABASE {LIVE}")


def _prepare_again() -> None:
    # DETACH makes SQLite prepare every statement again, ATTACH does not. A BEGIN IMMEDIATE prepared before would lock
    # the copy only, and others could write to the store meanwhile.
    rows.execute("ATTACH DATABASE ':memory:' AS spare")
    rows.execute("DETACH DATABASE spare")


def take_events(up_to: int) -> int:
    """Copy the events that the current copy lacks; return its previous head. Requires ``attached``."""
    last = head()[0]
    try:
        for start in range(last, up_to, _COPIED_AT_ONCE):
            rows.execute(_TAKE, [start, min(start + _COPIED_AT_ONCE, up_to)])
    except IntegrityError as error:
        raise Damaged(
            f"the log cannot be copied: {error}; run `memory-hub doctor` to see the damage and the next steps"
        ) from error
    return last


def apply_events(after: int, progress: Progress = lambda _: None) -> int:
    """Apply the copy's events after a position to its read models; return their number."""
    count = 0
    with transaction.atomic(using=require_current_alias()), rows.gathering():
        void = void_positions()
        for event in read_all(after=after):
            if event.position not in void:
                apply(event)
            count += 1
            if count % _PROGRESS_EVENTS == 0:
                progress(count)
    return count


def follow(source: Path, *, up_to: int, progress: Progress = lambda _: None) -> int:
    with attached(source):
        last = take_events(up_to)
    return apply_events(last, progress)
