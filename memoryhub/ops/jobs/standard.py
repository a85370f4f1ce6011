"""The hub's own jobs."""

from __future__ import annotations

import shutil
import zlib

from memories.embeddings.following import embed_current_store, needs_embedding
from memories.search.index import index_problem
from memories.uses.drain import count_uses, prune_uses
from memoryhub.core import clock, log
from memoryhub.core.backends.selected import integrity
from memoryhub.core.errors import Unavailable
from memoryhub.core.jobs import Every, Over, Run, define_job
from memoryhub.core.stores.store import current_store, folder_of, use_store
from memoryhub.core.text import counted
from memoryhub.ops.backups.restoring import Rebuilt, rebuild_store
from memoryhub.ops.backups.service import back_up_target
from memoryhub.ops.jobs.status import check_store
from sessions_app.services import end_idle_sessions
from sessions_app.services.turns import expire_turns, has_expired_turns


# The store may be damaged, as long as its log can be read (decision 32)
def rebuild_models(run: Run) -> str:
    store = run.store
    if store is None:
        raise TypeError("only stores have read models")
    rebuilt = rebuild_store(store=store, progress=lambda events: _report(run, events, 0))
    run.report(rebuilt.report.events, rebuilt.report.events)
    return _rebuilt_text(rebuilt)


def clear_logins(run: Run) -> str:
    from django.contrib.sessions.models import Session  # models are not loaded yet when jobs are defined

    if run.ages_until is None:
        return ""
    deleted = Session.objects.filter(expire_date__lt=run.ages_until).delete()[0]
    return _counted(deleted, "expired sign-in deleted", "expired sign-ins deleted")


def prune_statistics(run: Run) -> str:
    pruned = prune_uses(now=run.ages_until, until=run.until) if run.ages_until else 0
    return _counted(pruned, "deleted memory's statistics removed", "deleted memories' statistics removed")


def reindex(run: Run) -> str:
    events = log.head()[0]
    search_tables = ["memories_searchdocument"]
    report = log.rebuild(lambda count: _report(run, min(count, events), events), only=search_tables)
    run.report(report.events, report.events)
    shutil.rmtree(folder_of(current_store()) / "index", ignore_errors=True)
    try:
        embedded = embed_current_store(until=run.until)
    except Unavailable as error:
        embedded = f"the worker will embed the rest: {error.message}"
    return "; ".join(filter(None, [_rebuilt_text(Rebuilt(report)), embedded]))


def _report(run: Run, count: int, events: int) -> None:
    run.report(count, events)
    run.require_time()


def _rebuilt_text(rebuilt: Rebuilt) -> str:
    replaced = [table for table in rebuilt.report.tables if table.replaced]
    different = [table.table for table in replaced if not table.identical]
    verdict = "all identical"
    if different:
        verdict = f"{', '.join(different)} differed and {'was' if len(different) == 1 else 'were'} replaced"
    text = f"{counted(rebuilt.report.events, 'event')} applied, {counted(len(replaced), 'table')}: {verdict}"
    if rebuilt.problem:
        text += f"; {rebuilt.problem}: rebuilt as a new file, previous file: {rebuilt.previous_file}"
    return text


def verify_target(run: Run) -> str:
    store = run.store
    if store is None:
        raise TypeError("only stores have a chain")
    check = check_store(store)
    if not check.ok:
        raise Unavailable(f"{check.finding}; run `memory-hub doctor` for the repair")
    run.report(check.events, check.events)
    with use_store(store):
        problem = integrity.damage() or integrity.schema_problem()
        if problem:
            raise Unavailable(f"{problem}; run `memory-hub doctor` for the repair")
        return f"{check.finding}; {_compare_store(run, check.events)}"


# Large logs are compared completely once a week, otherwise by a sample, as when time runs out (decision 32)
def _compare_store(run: Run, events: int) -> str:
    problem = index_problem()
    if problem:
        raise Unavailable(problem)

    def report(count: int) -> None:
        run.report(min(count, events), events)
        if run.over:
            raise _OutOfTime

    # Stores are spread over the week by a hash of their names
    is_its_day = (clock.now().toordinal() + zlib.crc32(current_store().alias.encode())) % 7 == 0
    try:
        comparison = log.compare(whole=is_its_day, progress=report)
    except _OutOfTime:
        comparison = log.compare_sample()
    if comparison.differences:
        different = ", ".join(difference.describe() for difference in comparison.differences)
        deep = " --deep" if comparison.sampled else ""
        raise Unavailable(f"read models differ from the log: {different}; run `memory-hub doctor{deep}` for the repair")
    return comparison.describe()


class _OutOfTime(Exception):
    pass


def _counted(count: int, one: str, many: str) -> str:
    return counted(count, one, many) if count else ""


define_job(
    "embed texts",
    does="Computes vectors for new texts, so that they can be found by meaning.",
    work=lambda run: embed_current_store(until=run.until),
    every=Every.MINUTE,
    cap=40,
    has_work=needs_embedding,
)
define_job(
    "expire turns",
    does="Marks expired turns as incomplete.",
    work=lambda _: _counted(expire_turns(), "turn left open", "turns left open"),
    every=Every.MINUTE,
    over=Over.PROJECTS,
    cap=60,
    has_work=has_expired_turns,
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
    of_machine=True,
)
define_job(
    "prune use statistics",
    does="Deletes the usage counts of memories that were deleted a month ago.",
    work=prune_statistics,
    every=Every.DAY,
    cap=120,
)
define_job(
    "clear logins",
    does="Deletes sign-ins of browsers that have expired.",
    work=clear_logins,
    every=Every.DAY,
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
    does="Backs up stores while they are in use, verifies the backups, and keeps the last few.",
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
