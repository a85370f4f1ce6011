"""Apply the log again: rebuild the read models, compare them, or build a new store (decisions 29 and 32)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError, connections, models, transaction

from memoryhub.core import ids
from memoryhub.core.backends.base import HERE, LIVE, Source
from memoryhub.core.backends.selected import differences, faults, repair, scratch
from memoryhub.core.errors import Invalid, Locked
from memoryhub.core.events.projection import checks, finish_rebuild, read_models
from memoryhub.core.log.append import COLUMNS
from memoryhub.core.log.chain import Verification, verify
from memoryhub.core.log.copy import ErasedMeanwhile, Progress, StoreDraft, apply_events
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.read import head
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows, schema
from memoryhub.core.stores.dialect import IDS, columns_of, json_list
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.core.text import counted

# A projector may read any table as it was at its event, so no table can be rebuilt alone: the whole log is applied in
# a copy. Other writers wait only while rows are replaced (decision 29).


_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class TableReport:
    table: str
    rows: int
    before: str
    after: str
    # Whether the store got the rebuilt rows; otherwise they were only compared.
    replaced: bool

    @property
    def identical(self) -> bool:
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class RebuildReport:
    events: int
    seconds: float
    tables: list[TableReport]

    @property
    def identical(self) -> bool:
        return all(table.identical for table in self.tables)


def rebuild(progress: Progress = lambda _: None, *, only: Sequence[str] = ()) -> RebuildReport:
    """Rebuild read models from the log; they replace the present ones in one transaction.

    Args:
        progress: called with the number of events applied so far, about every 2,000.
        only: tables or app labels to replace; all others are only compared. Default: all.
    """
    labels = {model._meta.db_table: model._meta.app_label for model in read_models()}
    names = sorted({*labels, *labels.values()})
    unknown = [name for name in only if name not in names]
    if unknown:
        raise Invalid(f"{unknown[0][:80]!r} is not a read model; name a table or an app", choices=names)
    tables = frozenset(table for table, app in labels.items() if not only or table in only or app in only)
    started = time.monotonic()
    schema.ensure(connections[require_current_alias()])
    for _ in range(_ATTEMPTS):
        report = _attempt(current_store(), tables, progress)
        if report is not None:
            finish_rebuild()
            return RebuildReport(head()[0], time.monotonic() - started, report)
    raise Locked("events were erased during the rebuild; run rebuild again")


def _attempt(store: StoreId, tables: frozenset[str], progress: Progress) -> list[TableReport] | None:
    replaced = [model for model in read_models() if model._meta.db_table in tables]
    draft = StoreDraft(store, replaced)
    with scratch.temporary_copy(store), suppress(ErasedMeanwhile):
        draft.fill(progress)
        draft.catch_up()
        report = []
        with draft.compared() as differing:
            for model in read_models():
                count, before = differences.table_digest(model, LIVE)
                after = before
                if model in differing:
                    count, after = differences.table_digest(model, HERE)
                report.append(TableReport(model._meta.db_table, count, before, after, model in replaced))
        with draft.locked():
            pass
        draft.settle()
        return report
    # Text was erased since, which the draft must not restore.
    return None


def table_digests(*, with_log: bool = False) -> dict[str, tuple[int, str]]:
    """Return the number of rows and the digest of each read model, by table, and those of the log itself."""
    tables: list[type[models.Model]] = [*read_models()]
    if with_log:
        tables.insert(0, RawEvent)
    return {model._meta.db_table: differences.table_digest(model, HERE) for model in tables}


# A log of up to this many events is compared completely in a few seconds.
SMALL_LOG = 20_000
SAMPLED_EVENTS = 300
# The newest events are always in the sample: a new bug shows in them first.
_NEWEST = 50
# Longer streams are not sampled.
_LONGEST_STREAM = 200
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Difference:
    # A table, or the name of something derived from read models, such as an index.
    what: str
    rows: int
    # The keys of some of these rows.
    keys: tuple[str, ...]
    is_table: bool

    def describe(self) -> str:
        keys = ", ".join(f"#{key}" for key in self.keys[:_SHOWN])
        return f"{self.what} ({counted(self.rows, 'row')}: {keys}{', …' if self.rows > _SHOWN else ''})"


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
    store = current_store()
    draft = StoreDraft(store)
    with scratch.temporary_copy(store):
        draft.fill(progress)
        draft.catch_up()
        tables = []
        with draft.compared() as differing:
            for model in read_models():
                if model in differing:
                    count, keys = differences.recorded(model, limit=_SHOWN)
                    tables.append(Difference(model._meta.db_table, count, keys, is_table=True))
            return Comparison(head()[0], head()[0], (*tables, *_index_differences(None)))


def _index_differences(sample: list[int] | None) -> Iterator[Difference]:
    for what, check in checks.items():
        if differing := check(sample):
            yield Difference(what, len(differing), tuple(map(str, differing[:_SHOWN])), is_table=False)


def compare_sample() -> Comparison:
    """Compare the streams of randomly chosen events. Differences may be false; a whole comparison decides."""
    store, last = current_store(), head()[0]
    comparison = Comparison(last, 0, sampled=True)
    with scratch.temporary_copy(store), suppress(LookupError, ObjectDoesNotExist, DatabaseError):
        scratch.allow_gaps()  # rows of other streams are missing
        with scratch.attached(store):
            rows.execute(_TAKE_STREAMS, [json_list(_sampled_positions(last)), _LONGEST_STREAM])
        applied = apply_events(0)
        with scratch.attached(store), transaction.atomic(using=require_current_alias()):
            tables = filter(None, map(_sample_difference, read_models()))
            sample = rows.column("SELECT position FROM main.raw_events ORDER BY position")
            return replace(comparison, applied=applied, differences=(*tables, *_index_differences(sample)))
    # The sampled streams could not be applied without the others, so a whole comparison must decide.
    return replace(comparison, differences=(Difference("the sample", 0, (), is_table=False),))


# Copies whole streams: a row can only be rebuilt from all events of its stream.
_TAKE_STREAMS = (
    f"INSERT INTO main.raw_events ({', '.join(COLUMNS)}) SELECT {', '.join(COLUMNS)} FROM {LIVE}.raw_events "
    "WHERE stream_id IN (SELECT s.stream_id FROM "
    f"(SELECT DISTINCT stream_id FROM {LIVE}.raw_events WHERE position IN {IDS}) AS s "
    f"WHERE (SELECT max(e.stream_seq) FROM {LIVE}.raw_events AS e WHERE e.stream_id = s.stream_id) <= %s) "
    "ORDER BY position"
)


def _sampled_positions(last: int) -> list[int]:
    newest = range(max(1, last - _NEWEST + 1), last + 1)
    chosen = {1 + int.from_bytes(ids.random_bytes(8)) % last for _ in range(SAMPLED_EVENTS - _NEWEST)}
    return sorted({*newest, *chosen})


def _sample_difference(model: type[models.Model]) -> Difference | None:
    # A sample has only some streams, so only columns that no other stream changes can be compared
    # (``StoreModel.from_own_stream``).
    columns = getattr(model, "from_own_stream", ())
    names = [f'"{field.column}"' for field in model._meta.local_concrete_fields if field.name in columns]
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
    if len(keys) == 1:
        missing += f" UNION {extra}"
    differing = rows.column(missing)
    if not differing:
        return None
    return Difference(table, len(differing), tuple(map(str, differing[:_SHOWN])), is_table=True)


def verify_damaged(store: StoreId) -> Verification:
    """Verify the log of a store as ``verify`` does, even if the rest of its file is damaged."""
    with readable_log(store) as source:
        if source is None:
            return Verification(False, 0, GENESIS, 1, "the log cannot be found in the file")
        with scratch.temporary_copy(store), repair.passing_over_damage(), scratch.attached(source):
            return verify(of=store, database=LIVE)


@contextmanager
def readable_log(store: StoreId) -> Iterator[Source | None]:
    """Yield from where the store's log can be read: the store, a temporary copy, or None."""
    try:
        with scratch.temporary_copy(store), repair.passing_over_damage(), scratch.attached(store):
            rows.fetch(f"SELECT count(*) FROM (SELECT 1 FROM {LIVE}.raw_events LIMIT 1) AS t")
        has_log = True
    except DatabaseError as error:
        if not faults.is_damage(error):
            raise
        has_log = False
    if has_log:
        yield store
        return
    with repair.salvaged(store) as source:
        yield source
