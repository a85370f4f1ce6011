"""Stores: opening, filling, verifying and rebuilding them, and what they take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count, cycle
from pathlib import Path

from benchmarks.speed import corpus
from benchmarks.speed.bench import Bench, SizedBench
from benchmarks.speed.figures import BARE, Amount, Figure, Unit
from benchmarks.speed.timing import interleave, seconds_of
from benchmarks.speed.twin import connect
from memories import services
from memories.schemas import MemoryWrite
from memoryhub.core import log
from memoryhub.core.backends.selected import stores as backend_stores
from memoryhub.core.stores import rows
from memoryhub.core.stores import store as stores
from memoryhub.core.stores.store import StoreId, project_store, use_store

_TIMES = 40
_SWITCHES = 200


def measure_stores(bench: Bench) -> Iterator[Figure]:
    bench.progress("stores", 0, 1)
    pair = [project_store("bench-one"), project_store("bench-two")]
    for store in pair:
        with use_store(store, create=True):
            services.write_memories(commands=[MemoryWrite(**corpus.arguments(index)) for index in range(100)])
    opened, bare = interleave(_TIMES, lambda: _open_cold(pair[0]), lambda: seconds_of(_open_bare, pair[0]))
    yield Figure("stores.open", "open a store, cold", Unit.MILLISECONDS, opened, None, bare, BARE)
    turns = cycle(pair)
    (switched,) = interleave(_SWITCHES, lambda: seconds_of(_switch, next(turns)))
    yield Figure("stores.switch", "switch between open stores", Unit.MILLISECONDS, switched)
    numbers = count()
    (made,) = interleave(_TIMES, lambda: seconds_of(_switch, project_store(f"bench-made-{next(numbers)}"), create=True))
    yield Figure("stores.create", "create a store", Unit.MILLISECONDS, made)


def _open_cold(store: StoreId) -> float:
    stores.forget(store)
    return seconds_of(_read, store)


def _read(store: StoreId) -> None:
    with use_store(store):
        log.head()


def _open_bare(store: StoreId) -> None:
    with closing(connect(Path(backend_stores.location(store)))) as connection:
        connection.execute("SELECT position, chain_digest FROM raw_events ORDER BY position DESC LIMIT 1").fetchone()


def _switch(store: StoreId, *, create: bool = False) -> None:
    with use_store(store, create=create):
        pass


_BATCH = 500


def measure_bulk(sized: SizedBench) -> Iterator[Figure]:
    hub = bare = 0.0
    with use_store(sized.store, create=True):
        for start in range(0, sized.size, _BATCH):
            count = min(_BATCH, sized.size - start)
            commands = [MemoryWrite(**corpus.arguments(sized.next_index())) for _ in range(count)]
            hub += seconds_of(services.write_memories, commands=commands)
            bare += sized.twin.follow()
            sized.progress("filling the store", start + count, sized.size)
    rates = [Amount(sized.size / seconds, samples=sized.size) for seconds in (hub, bare)]
    yield Figure("bulk", "bulk import", Unit.PER_SECOND, rates[0], sized.size, rates[1], BARE)


_SEARCHES = 20


def measure_size(sized: SizedBench) -> Iterator[Figure]:
    with use_store(sized.store):
        rows.fetch("PRAGMA wal_checkpoint(TRUNCATE)")
        size, count = backend_stores.sizes(sized.store)["events.db"], _count("count(*)")
        text = _count("sum(length(CAST(title || content || tags AS BLOB)))")
    for key, label, unit, share in (
        ("size.store", "events.db", Unit.MEGABYTES, 1e6),
        ("size.memory", "events.db, per memory", Unit.BYTES, count),
    ):
        yield Figure(key, label, unit, Amount(size / share), sized.size, Amount(text / share), "text alone")


def _count(what: str) -> int:
    count: int = rows.fetch(f"SELECT {what} FROM memories_memory")[0][0]
    return count


def measure_peak_memory(sized: SizedBench) -> Iterator[Figure]:
    for number in range(_SEARCHES):
        sized.stdio.search(corpus.question(sized.size * number // _SEARCHES))
    peak = sized.stdio.peak_resident_bytes()
    if peak:  # on Linux alone
        yield Figure("memory", "window (mcp), peak resident", Unit.MEGABYTES, Amount(peak / 1e6), sized.size)


def measure_verify(sized: SizedBench) -> Iterator[Figure]:
    """Yield the events per second of ``verify``.

    Raises:
        RuntimeError: the chain is broken.
    """
    sized.progress("verify", 0, 1)
    with use_store(sized.store):
        verifications: list[log.Verification] = []
        seconds = seconds_of(lambda: verifications.append(log.verify()))
    if not verifications[0].ok:
        raise RuntimeError(verifications[0].describe())
    rate = Amount(verifications[0].events / seconds, samples=verifications[0].events)
    yield Figure("verify", "verify, events", Unit.PER_SECOND, rate, sized.size)


def measure_rebuild(sized: SizedBench) -> Iterator[Figure]:
    """Yield the events per second of ``rebuild``, including the digests of all tables before and after.

    Raises:
        RuntimeError: a table changed.
    """
    sized.progress("rebuild", 0, 1)
    with use_store(sized.store):
        report = log.rebuild(lambda done: sized.progress("rebuild", done, sized.size))
    different = [table.table for table in report.tables if not table.identical]
    if different:
        raise RuntimeError(f"the rebuild changed these tables: {', '.join(different)}")
    rate = Amount(report.events / report.seconds, samples=report.events)
    yield Figure("rebuild", "rebuild, events", Unit.PER_SECOND, rate, sized.size)
