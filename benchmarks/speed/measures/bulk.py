"""Bulk import through the log, 500 memories per transaction, compared with the same rows by bare ``sqlite3``."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed import corpus
from benchmarks.speed.bench import SizedBench
from benchmarks.speed.figures import BARE, Amount, Figure, Unit
from benchmarks.speed.timing import seconds_of
from memories import services
from memories.schemas import MemoryWrite
from memoryhub.core.stores.store import use_store

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
