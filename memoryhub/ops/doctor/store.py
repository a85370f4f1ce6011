"""Check one store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from shlex import quote

from django.db import DatabaseError

from memories.embeddings.engine import damaged_files
from memories.search.index import index_problem
from memoryhub import env
from memoryhub.core import clock, ids, log
from memoryhub.core.backends.selected import faults, integrity, machines, stores
from memoryhub.core.backends.sqlite.options import JOURNAL_SIZE_LIMIT
from memoryhub.core.errors import Damaged, HubError, Locked, Moved
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.log.rebuilding import verify_damaged
from memoryhub.core.stores.store import StoreId, current_store, folder_of, use_store
from memoryhub.ops.backups.files import (
    BEFORE_REBUILD,
    backups_of,
    compared_with_backup,
    foreign_log,
    kept_before_restores,
    made_at,
    newest_sound_backup,
)
from memoryhub.ops.doctor.finding import Finding, blamed_on_disk, examine_backups, option, restore_command, set_aside
from memoryhub.ops.jobs.running import JobTarget
from memoryhub.ops.jobs.status import models_behind

_ANCHOR = "store's anchor" if machines.SHARED else "file `head` beside the store"
_WAL_BYTES = 2 * JOURNAL_SIZE_LIMIT
# How old the newest backup may be, and a store that has none: the hub makes one a day
_BACKUP_AGE = timedelta(days=3)
_KEPT_LONG = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Examination:
    findings: list[Finding]
    # What was compared with the log; "" if the store could not be read
    compared: str


# ``deep`` compares all read models with the log; otherwise a long log is sampled (decision 32)
def examine_store(store: StoreId, *, deep: bool = False) -> Examination:
    problems: list[_Pair] = []
    damage = compared = ""
    try:
        with use_store(store):
            damage = integrity.damage() or integrity.header_problem(store)
            if not damage:
                problems, compared = _examine_open_store(store, deep=deep)
    except Locked as error:
        problems = [_locked_problem(error)]
    except Damaged as error:
        problems = [(error.message, _restore(store) + _accept(store))]
    except HubError as error:
        if faults.is_damage(error.__cause__):
            damage = error.message
        else:
            problems = [_unopened(store, error)]
    # Read over a connection of its own, once the store is closed
    if damage:
        problems = [_damaged(store, damage)]
    backups = examine_backups(store, whole=not problems, deep=deep)
    where = JobTarget(store).title
    return Examination(
        [Finding(where, what, repair) for what, repair in [*problems, *backups, *_beside(store)]], compared
    )


def _examine_open_store(store: StoreId, *, deep: bool) -> tuple[list[_Pair], str]:
    changed = integrity.schema_problem()
    verification = log.verify()
    problems = [*_identity(store), *_schema(store, changed), *_chain(store, verification)]
    # Tables may be missing, or the log can't be trusted
    if changed or not (verification.ok or verification.ahead):
        return problems, ""
    compared, different = _examine_read_models(store, deep=deep)
    return [*problems, *_behind(store), *different], compared


_Pair = tuple[str, str]


def _unopened(store: StoreId, error: HubError) -> _Pair:
    if isinstance(error, Moved):
        return error.message, "run doctor in its new place"
    if "migrations" in error.data:
        return error.message, "`pip install --upgrade django-memory-hub`"
    blamed = blamed_on_disk("", error.message)
    if blamed:
        return blamed.what, blamed.repair
    return error.message, _restore(store)


def _identity(store: StoreId) -> Iterator[_Pair]:
    foreign = foreign_log(store)
    if foreign:
        if machines.SHARED or newest_sound_backup(store):
            yield foreign, _restore(store)
        else:
            yield foreign, set_aside(folder_of(store))


def _locked_problem(error: Locked) -> _Pair:
    return error.message, "end the process that holds the lock, or wait, and run doctor again"


# A rebuild first: a restore loses what was written after the backup (decision 32)
def _damaged(store: StoreId, problem: str) -> _Pair:
    try:
        verification = verify_damaged(store)
    except DatabaseError as error:
        return _locked_problem(Locked(f"memory database unavailable: {error}"))
    if verification.ok:
        rebuild = f"`memory-hub rebuild {option(store)}` rebuilds the file from it and keeps the damaged one"
        return f"{problem}; {verification.describe()}", f"{rebuild}; nothing is lost"
    readable = "none of the log can be read"
    if verification.events:
        readable = f"the log can be read up to #{verification.events}"
    return f"{problem}; {verification.describe()}; {readable}", _restore(store)


def _schema(store: StoreId, changed: str) -> Iterator[_Pair]:
    missing = integrity.missing_log_triggers()
    if missing:
        yield f"the log can be changed: its triggers are missing ({', '.join(missing)})", _again(store, "rebuild")
    if changed:
        yield changed, _again(store, "rebuild")


def _chain(store: StoreId, verification: log.Verification) -> Iterator[_Pair]:
    if verification.ahead:
        older = compared_with_backup(store)
        if older:
            yield f"{verification.describe()}; {older}", _restore(store)
        else:
            rebuild = f"{_again(store, 'rebuild')} makes the read models again from what is left of the log"
            yield verification.describe(), rebuild
        return
    if not verification.ok:
        accept = _accept(store) if log.anchor_problem() else ""
        yield verification.describe(), _restore(store) + accept
        return
    if verification.events and _has_no_anchor():
        yield (
            f"the {_ANCHOR}, which shows a cut tail, is missing",
            f"`memory-hub doctor --accept-loss {option(store)}` creates it again and records that it was missing",
        )
    older = compared_with_backup(store)
    if older:
        yield older, _restore(store)


def _has_no_anchor() -> bool:
    try:
        return read_anchor(current_store()) is None
    except ValueError:
        return False  # reported by the chain's check


def _behind(store: StoreId) -> Iterator[_Pair]:
    behind = models_behind()
    if behind:
        yield f"read models are behind the log: {', '.join(behind)}", _again(store, "rebuild")
    problem = index_problem()
    if problem:
        yield problem.partition(";")[0], _again(store, "reindex")
    for path in damaged_files(folder_of(store)):
        yield f"the vector index {path.name} is damaged", f"`rm {quote(str(path))}`; the next search creates it again"


def _examine_read_models(store: StoreId, *, deep: bool) -> tuple[str, list[_Pair]]:
    try:
        comparison = log.compare(whole=deep)
    except OSError as error:
        what = f"the read models could not be compared with the log ({error.strerror})"
        return "", [(what, f"make room under {env.home()}, or the right to write there, and run doctor again")]
    tables = [difference.describe() for difference in comparison.differences if difference.is_table]
    differences = [difference.describe() for difference in comparison.differences if not difference.is_table]
    pairs = [
        (tables, "read models differ from the log", "rebuild"),
        (differences, "the search index differs from the log", "reindex"),
    ]
    findings = [(f"{problem}: {', '.join(which)}", _again(store, job)) for which, problem, job in pairs if which]
    return comparison.describe(), findings


def _beside(store: StoreId) -> Iterator[_Pair]:
    size = stores.sizes(store).get("events.db-wal", 0)
    if size > _WAL_BYTES:
        yield (
            f"the write-ahead log has {size // 2**20} MB; searches get slower with it",
            "let `memory-hub serve` run, which shortens it, or end the process that keeps reading",
        )
    if machines.SHARED:
        return  # the database is backed up by its server's means
    backups = backups_of(store)
    what = ""
    if backups:
        newest = made_at(backups[-1])
        if newest < clock.now() - _BACKUP_AGE or clock.is_misdated(newest):
            what = f"the last backup is from {newest:%Y-%m-%d}"
    elif _is_older_than_a_backup(store):
        what = "there is no backup"
    if what:
        yield what, "let `memory-hub serve` run, or run `memory-hub backup`"
    for path in kept_before_restores(store):
        if made_at(path) < clock.now() - _KEPT_LONG:
            when = f"{_replaced_text(path)} on {made_at(path):%Y-%m-%d}"
            what = f"a copy of the store from before it was {when} is still kept"
            yield what, f"remove {path} when you no longer need it"


# By the id of its first event, because events of the sample project and of imports are dated earlier
def _is_older_than_a_backup(store: StoreId) -> bool:
    try:
        with use_store(store):
            first = log.events().first()
        return first is not None and ids.time_of(first.event_id) < (clock.now() - _BACKUP_AGE).timestamp()
    except (HubError, ValueError):  # also an id that was damaged
        return True


def _replaced_text(path: Path) -> str:
    return "rebuilt" if path.name.endswith(BEFORE_REBUILD) else "restored"


def _restore(store: StoreId) -> str:
    restore, none = restore_command(store, " --replace")
    return f"{restore} restores a backup and keeps the current file{none}"


def _accept(store: StoreId) -> str:
    return (
        f"; if no backup has the lost events, `memory-hub doctor --accept-loss {option(store)}` continues without them"
    )


def _again(store: StoreId, job: str) -> str:
    return f"`memory-hub jobs {job} {option(store)}`"
