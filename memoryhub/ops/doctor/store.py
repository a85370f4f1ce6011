"""Findings of the doctor: each is a problem and its repair. Check one store, and its backups."""

from __future__ import annotations

import os
import shutil
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
from memoryhub.ops.backups.service import (
    BEFORE_REBUILD,
    backups_of,
    bundle_problem,
    compared_with_backup,
    examine_backup,
    foreign_log,
    hub_problem,
    kept_before_restores,
    made_at,
    newest_sound_backup,
)
from memoryhub.ops.jobs.running import JobTarget
from memoryhub.ops.jobs.status import models_behind

# Room for the file of a WAL's index, which has 32 KiB, and some more.
_LEAST_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class Finding:
    # Such as project alpha or hub.db
    where: str
    # The problem, as a sentence without its full stop
    what: str
    repair: str


# SQLite can't open a WAL database where it can't create the index file of the WAL. Such a database need not be
# damaged, so a restore must not be proposed.
def blamed_on_disk(where: str, problem: str) -> Finding | None:
    home = env.home()
    if shutil.disk_usage(home).free < _LEAST_BYTES:
        what = f"it cannot be opened while the disk is full: {problem}"
        return Finding(where, what, "make room on the disk, then run doctor again")
    if not os.access(home, os.W_OK):
        what = f"it cannot be opened while its folder is read-only: {problem}"
        return Finding(where, what, "make the home folder writable, then run doctor again")
    return None


def restore_command(store: StoreId, options: str = "") -> tuple[str, str]:
    if machines.SHARED:
        return "the server's own backup of the database, or `memory-hub bundle apply` of a bundle in backups/,", ""
    backup = newest_sound_backup(store)
    if backup:
        return f"`memory-hub restore {quote(str(backup))} {option(store)}{options}`", ""
    none = "; the home has no sound backup of it, so FILE must be one that you keep elsewhere"
    return f"`memory-hub restore FILE {option(store)}{options}`", none


def option(store: StoreId) -> str:
    return f"--{store.scope}" if store.scope == "global" else f"--{store.scope} {store.name}"


_Pair = tuple[str, str]


# None: the hub's own tables. ``whole``: the store has no problem, so another backup can be made. ``deep``: all
# backups, not only the newest. Those of another kind than this hub makes are from before a move (decision 79), and are
# left alone.
def examine_backups(store: StoreId | None, *, whole: bool, deep: bool) -> Iterator[_Pair]:
    backups = backups_of(store)
    for path in backups if deep else backups[-1:]:
        if store is None:
            problem = hub_problem(path)
        elif machines.SHARED:
            problem = bundle_problem(path)
        else:
            problem = examine_backup(path, store).problem
        if problem:
            repair = "repair the store first; the next backup replaces this one"
            if whole:
                repair = f"`rm {quote(str(path))}`, then `memory-hub backup` makes a new one"
            yield f"the backup {path.name} cannot be restored: {problem}", repair


def set_aside(folder: Path) -> str:
    aside = env.home() / "backups" / f"set-aside-{folder.name}"
    return f"`mv {quote(str(folder))} {quote(str(aside))}` sets it aside"


_ANCHOR = "store's anchor" if machines.SHARED else "file `head` beside the store"
_WAL_BYTES = 2 * JOURNAL_SIZE_LIMIT
# How old the newest backup may be, and a store that has none: the hub makes one a day
_BACKUP_AGE = timedelta(days=3)
_KEPT_LONG = timedelta(days=30)


# Returns also what was compared with the log: "" if the store could not be read. ``deep`` compares all read models;
# otherwise a long log is sampled (decision 32).
def examine_store(store: StoreId, *, deep: bool = False) -> tuple[list[Finding], str]:
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
    return [Finding(where, *problem) for problem in [*problems, *backups, *_beside(store)]], compared


def _examine_open_store(store: StoreId, *, deep: bool) -> tuple[list[_Pair], str]:
    changed = integrity.schema_problem()
    verification = log.verify()
    problems = [*_identity(store)]
    missing = integrity.missing_log_triggers()
    if missing:
        what = f"the log can be changed: its triggers are missing ({', '.join(missing)})"
        problems.append((what, _again(store, "rebuild")))
    if changed:
        problems.append((changed, _again(store, "rebuild")))
    problems += _chain(store, verification)
    # Tables may be missing, or the log can't be trusted
    if changed or not (verification.ok or verification.ahead):
        return problems, ""
    compared, different = _examine_read_models(store, deep=deep)
    return [*problems, *_behind(store), *different], compared


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
        repair = _restore(store)
        if log.anchor_problem():
            repair += _accept(store)
        yield verification.describe(), repair
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
            verb = "rebuilt" if path.name.endswith(BEFORE_REBUILD) else "restored"
            what = f"a copy of the store from before it was {verb} on {made_at(path):%Y-%m-%d} is still kept"
            yield what, f"remove {path} when you no longer need it"


# By the id of its first event, because events of the sample project and of imports are dated earlier
def _is_older_than_a_backup(store: StoreId) -> bool:
    try:
        with use_store(store):
            first = log.events().first()
        return first is not None and ids.time_of(first.event_id) < (clock.now() - _BACKUP_AGE).timestamp()
    except (HubError, ValueError):  # also an id that was damaged
        return True


def _restore(store: StoreId) -> str:
    restore, none = restore_command(store, " --replace")
    return f"{restore} restores a backup and keeps the current file{none}"


def _accept(store: StoreId) -> str:
    return (
        f"; if no backup has the lost events, `memory-hub doctor --accept-loss {option(store)}` continues without them"
    )


def _again(store: StoreId, job: str) -> str:
    return f"`memory-hub jobs {job} {option(store)}`"
