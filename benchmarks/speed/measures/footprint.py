"""Disk use of a store, and memory use of the ``mcp`` process."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed import corpus
from benchmarks.speed.bench import SizedBench
from benchmarks.speed.figures import Amount, Figure, Unit
from memoryhub.core.backends.selected import stores as backend_stores
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import use_store

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
    peak = sized.stdio.peak_resident_bytes() / 1e6
    yield Figure("memory", "mcp process, peak resident", Unit.MEGABYTES, Amount(peak), sized.size)
