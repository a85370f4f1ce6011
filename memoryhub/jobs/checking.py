"""The job that proves stores whole."""

from __future__ import annotations

from memories.search.index import index_problem
from memoryhub.checks import check_store
from memoryhub.core.errors import Unavailable
from memoryhub.core.integrity import damage
from memoryhub.core.jobs import Run
from memoryhub.core.stores import StoreId, use_store


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
    problem = _problem(store)
    if problem:
        raise Unavailable(problem)
    return check.finding


def _problem(store: StoreId) -> str:
    with use_store(store):
        found = damage()
        return f"{found}; `memory-hub doctor` says how to mend it" if found else index_problem()
