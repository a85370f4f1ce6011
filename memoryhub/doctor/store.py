"""The examination of one store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from memories.search.index import index_problem
from memoryhub.backups.making import backups_of, kept_before_restores, made_at
from memoryhub.core import clock, log, rows
from memoryhub.core.errors import Damaged, HubError, Locked
from memoryhub.core.integrity import damage
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.schema import LOG_TRIGGERS
from memoryhub.core.sqlite.options import JOURNAL_SIZE_LIMIT
from memoryhub.core.stores import StoreId, current_store, use_store
from memoryhub.doctor.finding import Finding
from memoryhub.jobs.places import Target
from memoryhub.lag import models_behind

_WAL_BYTES = 2 * JOURNAL_SIZE_LIMIT
_BACKUP_AGE = timedelta(days=3)
_KEPT_LONG = timedelta(days=30)


def examine_store(store: StoreId) -> list[Finding]:
    """Look at everything that a store has, and return what is wrong. Changes nothing but what opening upgrades."""
    where = Target(store).title
    try:
        with use_store(store):
            found = [*_file(store), *_chain(store), *_derived(store)]
    except Locked as error:
        found = [(error.message, "end the process that writes for so long, or wait, and run doctor again")]
    except Damaged as error:
        found = [(error.message, _restore(store) + _accept(store))]
    except HubError as error:
        found = [(error.message, _restore(store))]
    return [Finding(where, what, mend) for what, mend in [*found, *_beside(store)]]


_Pair = tuple[str, str]


def _file(store: StoreId) -> Iterator[_Pair]:
    problem = damage()
    if problem:
        yield problem, _restore(store)
    missing = sorted(set(LOG_TRIGGERS) - {name for (name,) in rows.fetch(_TRIGGERS)})
    if missing:
        yield f"the log can be changed: its triggers are missing ({', '.join(missing)})", _again(store, "rebuild")


_TRIGGERS = "SELECT name FROM sqlite_master WHERE type = 'trigger'"


def _chain(store: StoreId) -> Iterator[_Pair]:
    found = log.verify()
    if not found.ok:
        yield found.describe(), _restore(store) + (_accept(store) if log.anchor_problem() else "")
    elif found.events and _has_no_anchor():
        yield (
            "the file `head` beside the store, which shows a cut tail, is missing",
            f"if nobody removed it on purpose, compare with a backup; the next write to {store.name} makes it anew",
        )


def _has_no_anchor() -> bool:
    try:
        return read_anchor(current_store()) is None
    except ValueError:
        return False  # the chain says so


def _derived(store: StoreId) -> Iterator[_Pair]:
    behind = models_behind()
    if behind:
        yield f"read models are behind the log: {', '.join(behind)}", _again(store, "rebuild")
    problem = index_problem()
    if problem:
        yield problem.partition(";")[0], _again(store, "reindex")


def _beside(store: StoreId) -> Iterator[_Pair]:
    wal = store.path.with_name("events.db-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size > _WAL_BYTES:
        yield (
            f"the write-ahead log has {size // 2**20} MB; searches get slower with it",
            "let `memory-hub serve` run, which shortens it, or end the process that keeps reading",
        )
    backups = backups_of(store)
    newest = made_at(backups[-1]) if backups else None
    if newest is None or newest < clock.now() - _BACKUP_AGE:
        said = f"the last backup is of {newest:%Y-%m-%d}" if newest else "there is no backup"
        yield said, "let `memory-hub serve` run, or run `memory-hub backup`"
    for path in kept_before_restores(store):
        if made_at(path) < clock.now() - _KEPT_LONG:
            said = f"the store as it was before it was restored on {made_at(path):%Y-%m-%d} is still kept"
            yield said, f"remove {path} once nothing in it is wanted any more"


def _restore(store: StoreId) -> str:
    backups = backups_of(store)
    file = str(backups[-1]) if backups else "FILE"
    none = "" if backups else "; the home has no backup of it, so FILE is one that you kept elsewhere"
    return f"`memory-hub restore {file} {_option(store)} --replace` puts a backup back and keeps the file beside{none}"


def _accept(store: StoreId) -> str:
    return f"; where no backup has the lost events, `memory-hub doctor --accept-loss {_option(store)}` goes on without"


def _again(store: StoreId, job: str) -> str:
    return f"`memory-hub jobs {job} {_option(store)}`"


def _option(store: StoreId) -> str:
    return f"--{store.scope}" if store.scope == "global" else f"--{store.scope} {store.name}"
