"""The hub's own jobs."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Sequence

from memories.embeddings.following import embed_current_store
from memories.search.index import index_problem
from memories.uses.drain import count_uses, prune_uses
from memoryhub.core import clock, log
from memoryhub.core.counters import fold_ended
from memoryhub.core.errors import Unavailable
from memoryhub.core.jobs import Every, Over, Run, define_job
from memoryhub.core.stores.integrity import damage, schema_problem
from memoryhub.core.stores.store import StoreId, current_store, use_store
from memoryhub.core.text import counted
from memoryhub.ops.backups.making import back_up_target
from memoryhub.ops.backups.rebuilding import Rebuilt, rebuild_store
from memoryhub.ops.chain_state import check_store
from sessions_app.services import end_idle_sessions
from sessions_app.services.turns import expire_turns

_SEARCH_TABLES = ("memories_searchdocument",)


def rebuild_models(run: Run) -> str:
    """Rebuild all read models of the run's store, which need not be readable but for its log."""
    store = run.store
    if store is None:
        raise TypeError("only stores have read models")
    done = rebuild_store(store=store, progress=lambda events: _report(run, events, 0))
    run.report(done.report.events, done.report.events)
    return _described(done)


def reindex(run: Run) -> str:
    """Make the current store's full-text index anew, drop the cached index of its vectors, and embed what is behind."""
    told = _rebuilt(run, only=_SEARCH_TABLES)
    shutil.rmtree(current_store().path.with_name("index"), ignore_errors=True)
    return "; ".join(filter(None, [told, _embedded(run)]))


def _embedded(run: Run) -> str:
    try:
        return embed_current_store(until=run.until)
    except Unavailable as error:
        return f"the worker embeds what is behind, since {error.message}"


def _rebuilt(run: Run, *, only: Sequence[str] = ()) -> str:
    events = log.head()[0]
    report = log.rebuild(lambda done: _report(run, min(done, events), events), only=only)
    run.report(report.events, report.events)
    return _described(Rebuilt(report))


def _report(run: Run, done: int, events: int) -> None:
    run.report(done, events)
    run.require_time()


def _described(done: Rebuilt) -> str:
    replaced = [table for table in done.report.tables if table.replaced]
    different = [table.table for table in replaced if not table.identical]
    verdict = f"{', '.join(different)} differed and {'was' if len(different) == 1 else 'were'} put right"
    said = f"{counted(done.report.events, 'event')} applied, {counted(len(replaced), 'table')}"
    anew = f"; {done.problem}: it was built anew, and is kept as it was: {done.kept}" if done.problem else ""
    return f"{said}: {verdict if different else 'all as they were'}{anew}"


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
        found = log.compare(whole=_is_its_day(current_store()), progress=lambda done: _report_check(run, done, events))
    except _OutOfTime:
        found = log.compare_sample()
    if found.differences:
        different = ", ".join(each.describe() for each in found.differences)
        deep = " --deep" if found.sampled else ""
        raise Unavailable(f"not what the log says: {different}; `memory-hub doctor{deep}` says how to mend it")
    return found.describe()


class _OutOfTime(Exception):
    pass


def _report_check(run: Run, done: int, events: int) -> None:
    run.report(min(done, events), events)
    if run.over:
        raise _OutOfTime


def _is_its_day(store: StoreId) -> bool:
    """Return whether a store is compared whole today: stores are spread over the week by their names."""
    return (clock.now().toordinal() + zlib.crc32(store.alias.encode())) % 7 == 0


def _counted(count: int, one: str, many: str) -> str:
    return counted(count, one, many) if count else ""


define_job(
    "embed texts",
    does="Computes vectors for new texts, so that they can be found by meaning.",
    work=lambda run: embed_current_store(until=run.until),
    every=Every.MINUTE,
    cap=40,
)
define_job(
    "expire turns",
    does="Marks expired turns as incomplete.",
    work=lambda _: _counted(expire_turns(), "turn left open", "turns left open"),
    every=Every.MINUTE,
    over=Over.PROJECTS,
    cap=60,
)
define_job(
    "end idle sessions",
    does="Ends idle sessions with a summary of what was captured.",
    work=lambda _: _counted(end_idle_sessions(), "session ended", "sessions ended"),
    every=Every.HOUR,
    over=Over.PROJECTS,
    cap=60,
)
define_job(
    "count uses",
    does="Records in the log which memories were read, found and cited.",
    work=lambda _: _counted(count_uses(), "use counted", "uses counted"),
    every=Every.HOUR,
    cap=120,
)
define_job(
    "prune use statistics",
    does="Deletes the usage counts of memories that were deleted a month ago.",
    work=lambda run: _counted(
        prune_uses(until=run.until), "deleted memory's use forgotten", "deleted memories' uses forgotten"
    ),
    every=Every.DAY,
    cap=120,
)
define_job(
    "fold counters",
    does="Adds the counts of ended processes to the hub's sums.",
    work=lambda _: _counted(fold_ended(), "process's counts folded", "processes' counts folded"),
    every=Every.HOUR,
    over=Over.HUB,
    cap=60,
)
define_job(
    "verify stores",
    does="Verifies every chain up to its anchor, checks every page, and compares read models with the log.",
    work=verify_target,
    every=Every.DAY,
    cap=600,
    opened=False,
)
define_job(
    "backup",
    does="Copies a store while it is in use, verifies the copy, and keeps the last few.",
    work=back_up_target,
    every=Every.DAY,
    over=Over.ALL,
    cap=600,
)
define_job(
    "reindex",
    does="Rebuilds the full-text index and the vector index beside the store, then replaces the old ones.",
    work=reindex,
    every=Every.DEMAND,
    cap=800,
)
define_job(
    "rebuild",
    does="Rebuilds all read models from the log beside the store, compares them, then replaces the old ones.",
    work=rebuild_models,
    every=Every.DEMAND,
    cap=800,
    opened=False,
)
