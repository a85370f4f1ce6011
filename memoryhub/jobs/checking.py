"""The job that proves stores whole."""

from __future__ import annotations

import zlib

from memories.search.index import index_problem
from memoryhub.checks import check_store
from memoryhub.core import clock, log
from memoryhub.core.errors import Unavailable
from memoryhub.core.integrity import damage, schema_problem
from memoryhub.core.jobs import Run
from memoryhub.core.stores import StoreId, current_store, use_store


def verify_target(run: Run) -> str:
    """Verify the run's store; the finding on its chain is kept for the pages.

    Raises:
        Unavailable: something is wrong; the message says what.
    """
    store = run.store
    if store is None:
        raise TypeError("only stores have a chain")
    check = check_store(store)
    if not check.ok:
        raise Unavailable(f"{check.finding}; `memory-hub doctor` says how to mend it")
    run.report(check.events, check.events)
    with use_store(store):
        problem = damage() or schema_problem()
        if problem:
            raise Unavailable(f"{problem}; `memory-hub doctor` says how to mend it")
        return f"{check.finding}; {_compared(run, check.events)}"


def _compared(run: Run, events: int) -> str:
    """Compare the read models with the log, and say what was compared.

    A log that is not small is compared whole on one day of the week, by a sample on the others, and by a sample where
    the job has no time for more.

    Raises:
        Unavailable: they differ.
    """
    problem = index_problem()
    if problem:
        raise Unavailable(problem)
    try:
        found = log.compare(whole=_is_its_day(current_store()), progress=lambda done: _report(run, done, events))
    except _OutOfTime:
        found = log.compare_sample()
    if found.differences:
        different = ", ".join(each.describe() for each in found.differences)
        deep = " --deep" if found.sampled else ""
        raise Unavailable(f"not what the log says: {different}; `memory-hub doctor{deep}` says how to mend it")
    return found.describe()


class _OutOfTime(Exception):
    pass


def _report(run: Run, done: int, events: int) -> None:
    run.report(min(done, events), events)
    if run.over:
        raise _OutOfTime


def _is_its_day(store: StoreId) -> bool:
    """Return whether a store is compared whole today: stores are spread over the week by their names."""
    return (clock.now().toordinal() + zlib.crc32(store.alias.encode())) % 7 == 0
