"""All measures, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.speed.bench import Bench, SizedBench
from benchmarks.speed.figures import Figure
from benchmarks.speed.measures.calls import DOORS, measure_hybrid, measure_packs, measure_searches, measure_writes
from benchmarks.speed.measures.queries import measure_lineage, measure_queries
from benchmarks.speed.measures.start import measure_hooks, measure_starts, measure_tools
from benchmarks.speed.measures.stores import (
    measure_bulk,
    measure_peak_memory,
    measure_rebuild,
    measure_size,
    measure_stores,
    measure_verify,
)

Measure = Callable[[Bench], Iterator[Figure]]
SizedMeasure = Callable[[SizedBench], Iterator[Figure]]

# Once per run
MEASURES: dict[str, Measure] = {
    "start": measure_starts,
    "tools": measure_tools,
    "stores": measure_stores,
    "hook": measure_hooks,
}

# Once per size; the first fills the store, the last rebuilds it
SIZED_MEASURES: dict[str, SizedMeasure] = {
    "bulk": measure_bulk,
    "size": measure_size,
    **{f"search.{door}": partial(measure_searches, door=door) for door in DOORS},
    "search.hybrid": measure_hybrid,
    **{f"write.{door}": partial(measure_writes, door=door) for door in DOORS},
    "pack": measure_packs,
    "query": measure_queries,
    "lineage": measure_lineage,
    "memory": measure_peak_memory,
    "verify": measure_verify,
    "rebuild": measure_rebuild,
}

NAMES = tuple(dict.fromkeys(name.partition(".")[0] for name in (*MEASURES, *SIZED_MEASURES)))
