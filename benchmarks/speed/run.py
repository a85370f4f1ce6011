"""Run the chosen measures in order; a failed one is reported, and the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.db import connections

from benchmarks.machine import load, machine_facts
from benchmarks.speed.bench import Bench, Progress, Samples, SizedBench
from benchmarks.speed.figures import Failure, Figure, Results
from benchmarks.speed.measures import MEASURES, SIZED_MEASURES
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import store

logger = logging.getLogger(__name__)

# This measure fills the store, so it always runs before the other sized ones.
FILL = "bulk"


@dataclass(frozen=True, slots=True)
class Plan:
    sizes: Sequence[int]
    samples: Samples
    # Names of measures, or their parts before the dot; empty: all
    only: Collection[str] = ()

    def wants(self, name: str) -> bool:
        return not self.only or name in self.only or name.partition(".")[0] in self.only


def run(plan: Plan, home: Path, progress: Progress) -> Results:
    results = Results(machine_facts(home))
    try:
        with use_origin(source="cli", actor="bench"), closing(Bench(home, plan.samples, progress)) as bench:
            for name, measure in MEASURES.items():
                if plan.wants(name):
                    results.figures += _take(results, name, None, partial(measure, bench)) or []
            if any(map(plan.wants, SIZED_MEASURES)):
                for size in plan.sizes:
                    _measure_size(results, plan, bench, size)
    finally:
        connections.close_all()
    results.machine.update(load("after"))
    return results


def _measure_size(results: Results, plan: Plan, bench: Bench, size: int) -> None:
    with closing(SizedBench(bench, size)) as sized:
        filled = _take(results, FILL, size, partial(SIZED_MEASURES[FILL], sized))
        if filled is None:
            return
        results.figures += filled if plan.wants(FILL) else []
        for name, measure in SIZED_MEASURES.items():
            if name != FILL and plan.wants(name):
                results.figures += _take(results, name, size, partial(measure, sized)) or []
    store.forget(sized.store)


def _take(
    results: Results, name: str, size: int | None, measure: Callable[[], Iterable[Figure]]
) -> list[Figure] | None:
    try:
        return list(measure())
    except Exception as error:
        logger.info("%s failed", name, exc_info=True)
        results.failures.append(Failure(name, size, f"{error}" or type(error).__name__))
        return None
