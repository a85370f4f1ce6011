from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed.bench import SizedBench
from benchmarks.speed.figures import Amount, Figure, Unit
from benchmarks.speed.timing import seconds_of
from memoryhub.core import log
from memoryhub.core.stores.store import use_store


def measure_verify(sized: SizedBench) -> Iterator[Figure]:
    """Yield the events per second of ``verify``.

    Raises:
        RuntimeError: the chain is broken.
    """
    sized.progress("verify", 0, 1)
    with use_store(sized.store):
        found: list[log.Verification] = []
        seconds = seconds_of(lambda: found.append(log.verify()))
    if not found[0].ok:
        raise RuntimeError(found[0].describe())
    rate = Amount(found[0].events / seconds, samples=found[0].events)
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
