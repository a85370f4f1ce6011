"""The jobs that make read models anew from the log."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from memories.embeddings.following import embed_current_store
from memoryhub.backups.rebuilding import Rebuilt, rebuild_store
from memoryhub.core import log
from memoryhub.core.errors import Unavailable
from memoryhub.core.jobs import Run
from memoryhub.core.stores import current_store
from memoryhub.core.wording import counted

_SEARCH_TABLES = ("memories_searchdocument",)


def make_anew(run: Run) -> str:
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
