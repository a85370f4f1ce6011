from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count, cycle
from pathlib import Path

from benchmarks.speed import corpus
from benchmarks.speed.bench import Bench
from benchmarks.speed.figures import BARE, Figure, Unit
from benchmarks.speed.timing import interleave, seconds_of
from benchmarks.speed.twin import connect
from memories import services
from memories.schemas import MemoryWrite
from memoryhub.core import log
from memoryhub.core.backends.selected import stores as backend_stores
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
    (made,) = interleave(_TIMES, lambda: seconds_of(_make, project_store(f"bench-made-{next(numbers)}")))
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


def _switch(store: StoreId) -> None:
    with use_store(store):
        pass


def _make(store: StoreId) -> None:
    with use_store(store, create=True):
        pass
