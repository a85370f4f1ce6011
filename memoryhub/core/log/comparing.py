"""Compare the read models with the log, without changing either (decision 32)."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError, models, transaction

from memoryhub.core import ids
from memoryhub.core.backends.base import LIVE
from memoryhub.core.backends.selected import differences, scratch
from memoryhub.core.errors import Locked
from memoryhub.core.events.projection import checks, read_models
from memoryhub.core.log.append import COLUMNS
from memoryhub.core.log.copy import apply_events, follow
from memoryhub.core.log.read import head, last_erasure
from memoryhub.core.log.replacing import ErasedMeanwhile, Replacing
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, columns_of
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import counted

# A log of up to this many events is compared completely in a few seconds.
SMALL_LOG = 20_000
SAMPLED_EVENTS = 300
# The newest events are always in the sample: a new bug shows in them first.
_NEWEST = 50
# Longer streams are not sampled.
_LONGEST_STREAM = 200
_ATTEMPTS = 3
_SHOWN = 3

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Difference:
    # A table, or the name of something derived from read models, such as an index.
    what: str
    rows: int
    # The keys of some of these rows.
    keys: tuple[str, ...]
    is_table: bool

    def describe(self) -> str:
        shown = ", ".join(f"#{key}" for key in self.keys[:_SHOWN])
        return f"{self.what} ({counted(self.rows, 'row')}: {shown}{', …' if self.rows > _SHOWN else ''})"


@dataclass(frozen=True, slots=True)
class Comparison:
    # Events in the log.
    events: int
    # How many of them were applied again.
    applied: int
    differences: tuple[Difference, ...] = ()
    sampled: bool = False

    def describe(self) -> str:
        if not self.sampled:
            return f"read models and indexes compared with the whole log ({counted(self.events, 'event')})"
        share = f"{self.applied:,} of {self.events:,} events, in randomly chosen streams"
        return f"read models and indexes compared with a sample of the log ({share})"


def compare(*, whole: bool = False, progress: Progress = lambda _: None) -> Comparison:
    """Compare the current store's read models with its log; a long log is sampled first.

    Args:
        whole: compare all events even if the log is long.
        progress: called with the number of events applied so far; an exception from it stops the comparison.
    """
    if not whole and head()[0] > SMALL_LOG:
        sample = compare_sample()
        if not sample.differences:
            return sample
    for _ in range(_ATTEMPTS):
        with suppress(ErasedMeanwhile):
            return _compare_whole(progress)
    raise Locked("events were erased during the comparison; try again")


def _compare_whole(progress: Progress) -> Comparison:
    store, last = current_store(), head()[0]
    replacing = Replacing(store, last_erasure(), ())
    with scratch.temporary_copy(store):
        follow(store, up_to=last, progress=progress)
        replacing.catch_up()
        with replacing.compared() as differing:
            found = [_recorded(model) for model in read_models() if model in differing]
            return Comparison(head()[0], head()[0], (*found, *_checked(None)))


def _recorded(model: type[models.Model]) -> Difference:
    return Difference(model._meta.db_table, *differences.recorded(model, shown=_SHOWN), is_table=True)


def _checked(sample: list[int] | None) -> list[Difference]:
    found = ((what, check(sample)) for what, check in checks().items())
    return [
        Difference(what, len(different), tuple(map(str, different[:_SHOWN])), is_table=False)
        for what, different in found
        if different
    ]


def compare_sample() -> Comparison:
    """Compare the streams of randomly chosen events. Differences may be false; a whole comparison decides."""
    store, last = current_store(), head()[0]
    comparison = Comparison(last, 0, sampled=True)
    with scratch.temporary_copy(store), suppress(LookupError, ObjectDoesNotExist, DatabaseError):
        scratch.allow_gaps()  # rows of other streams are missing
        with scratch.attached(store):
            rows.execute(_TAKE_STREAMS, [json.dumps(_positions(last)), _LONGEST_STREAM])
        applied = apply_events(0)
        with scratch.attached(store), transaction.atomic(using=require_current_alias()):
            found = [difference for model in read_models() if (difference := _of_own_stream(model))]
            sample = [position for (position,) in rows.fetch("SELECT position FROM main.raw_events ORDER BY position")]
            return replace(comparison, applied=applied, differences=(*found, *_checked(sample)))
    return replace(comparison, differences=(_UNDECIDED,))


# The sampled streams could not be applied without the others, so a whole comparison must decide.
_UNDECIDED = Difference("the sample", 0, (), is_table=False)
# Copies whole streams: a row can only be rebuilt from all events of its stream.
_TAKE_STREAMS = (
    f"INSERT INTO main.raw_events ({', '.join(COLUMNS)}) SELECT {', '.join(COLUMNS)} FROM {LIVE}.raw_events "
    "WHERE stream_id IN (SELECT s.stream_id FROM "
    f"(SELECT DISTINCT stream_id FROM {LIVE}.raw_events WHERE position IN {IDS}) AS s "
    f"WHERE (SELECT max(e.stream_seq) FROM {LIVE}.raw_events AS e WHERE e.stream_id = s.stream_id) <= %s) "
    "ORDER BY position"
)


def _positions(last: int) -> list[int]:
    newest = range(max(1, last - _NEWEST + 1), last + 1)
    chosen = {1 + int.from_bytes(ids.random_bytes(8)) % last for _ in range(SAMPLED_EVENTS - _NEWEST)}
    return sorted({*newest, *chosen})


def _of_own_stream(model: type[models.Model]) -> Difference | None:
    # A sample has only some streams, so only columns that no other stream changes can be compared
    # (``StoreModel.from_own_stream``).
    own = getattr(model, "from_own_stream", ())
    names = [f'"{field.column}"' for field in model._meta.local_concrete_fields if field.name in own]
    if not names:
        return None
    table = model._meta.db_table
    keys = [f'"{field.column}"' for field in model._meta.pk_fields]
    same_key = " AND ".join(f"l.{key} = m.{key}" for key in keys)
    same = f"({columns_of('l', names)}) IS NOT DISTINCT FROM ({columns_of('m', names)})"
    # Rows of the rebuilt copy that are missing or different in the store.
    missing = (
        f'SELECT {columns_of("m", keys[:1])} FROM main."{table}" AS m WHERE NOT EXISTS '
        f'(SELECT 1 FROM {LIVE}."{table}" AS l WHERE {same_key} AND {same})'
    )
    # Rows of the store whose event is in the sample but created no such row.
    extra = (
        f'SELECT {columns_of("l", keys[:1])} FROM {LIVE}."{table}" AS l WHERE {columns_of("l", keys[:1])} IN '
        f'(SELECT position FROM main.raw_events) AND NOT EXISTS (SELECT 1 FROM main."{table}" AS m WHERE {same_key})'
    )
    found = [str(key) for (key,) in rows.fetch(missing if len(keys) > 1 else f"{missing} UNION {extra}")]
    return Difference(table, len(found), tuple(found[:_SHOWN]), is_table=True) if found else None
