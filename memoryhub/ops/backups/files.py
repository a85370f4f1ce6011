"""Backup files: their names, and whether each is sound."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from django.db import DatabaseError

from memoryhub import env
from memoryhub.core import clock, log
from memoryhub.core.backends.selected import integrity, machines
from memoryhub.core.backends.sqlite import files
from memoryhub.core.disk import make_folder
from memoryhub.core.errors import HubError, Unavailable
from memoryhub.core.stores.store import StoreId
from memoryhub.transfer.bundles.archive import open_bundle

BEFORE_RESTORE = "-before-restore.db"
BEFORE_REBUILD = "-before-rebuild.db"
BUNDLE = ".bundle"
_NAME = re.compile(r"\d{8}T\d{9}Z\.db")
_NAME_OF_BUNDLE = re.compile(r"\d{8}T\d{9}Z\.bundle")
_NAME_BEFORE = re.compile(r"\d{8}T\d{9}Z-before-(restore|rebuild)\.db")


def backup_folder(store: StoreId | None) -> Path:
    return env.home() / "backups" / (f"{store.scope}-{store.name}" if store else "hub")


# Oldest first
def backups_of(store: StoreId | None) -> list[Path]:
    return _in_order(path for path in backup_folder(store).glob("*.db") if _NAME.fullmatch(path.name))


def bundles_of(store: StoreId) -> list[Path]:
    return _in_order(path for path in backup_folder(store).glob(f"*{BUNDLE}") if _NAME_OF_BUNDLE.fullmatch(path.name))


# Those of the future first: they are from a time when the clock was ahead, and must not pass for the newest until then
def _in_order(paths: Iterable[Path]) -> list[Path]:
    latest = clock.file_stamp(clock.now() + clock.MISDATED_AFTER)
    return sorted(paths, key=lambda path: (path.name < latest, path.name))


# Copies from before a restore or rebuild, oldest first
def kept_before_restores(store: StoreId) -> list[Path]:
    return sorted(path for path in backup_folder(store).glob("*.db") if _NAME_BEFORE.fullmatch(path.name))


def path_to_keep(store: StoreId, suffix: str) -> Path:
    """Return the path of a copy from before a restore or rebuild: the newest file, even if the clock is behind."""
    folder, moment = new_path(store).parent, clock.now()
    for path in folder.glob("*.db"):
        with suppress(ValueError):  # a person's file
            moment = max(moment, made_at(path) + timedelta(milliseconds=1))
    return folder / f"{clock.file_stamp(moment)}Z{suffix}"


# From the name of the file
def made_at(backup: Path) -> datetime:
    return clock.from_file_stamp(backup.name)


def new_path(store: StoreId | None) -> Path:
    folder = backup_folder(store)
    env.prepare_home()
    make_folder(folder)
    return folder / f"{clock.file_stamp()}Z.db"


def is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


_NEVER = datetime.min.replace(tzinfo=UTC)
_HEADER = b"SQLite format 3\0"
# One table of each of the two databases that no other file of the hub has.
HUB_TABLES = {"hub.db": "memoryhub_jobrun", "jobs.db": "django_q_ormq"}


# ``problem`` is "" for a sound backup; ``position`` and ``digest`` are the head of its log
@dataclass(frozen=True, slots=True)
class Examined:
    path: Path
    problem: str = ""
    position: int = 0
    digest: str = ""


# As a restore verifies it: about a second for 300 MB, then cached
def examine_backup(path: Path, store: StoreId) -> Examined:
    problem = _file_problem(path)
    if problem:
        return Examined(path, problem)
    status = path.stat()
    return _examined(path, store, (status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=64)
def _examined(path: Path, store: StoreId, _stamp: tuple[int, int, int]) -> Examined:
    try:
        with files.opened(path, immutable=True):
            require_sound()
            return Examined(path, foreign_log(store), *log.head())
    except (HubError, DatabaseError) as error:
        return Examined(path, getattr(error, "message", str(error)))


# "" for a bundle whose every event can be read
def bundle_problem(path: Path) -> str:
    try:
        for _ in open_bundle(path, lambda: "").events():
            pass
    except HubError as error:
        return error.message
    except OSError as error:
        return f"the file cannot be read ({error.strerror})"
    return ""


# Backups are SQLite files; with a database server, those in the home are from before a move
def newest_sound_backup(store: StoreId) -> Path | None:
    if machines.SHARED:
        return None
    newest_first = reversed(backups_of(store))
    return next((path for path in newest_first if not examine_backup(path, store).problem), None)


def newest_sound_hub_backup() -> Path | None:
    return next((path for path in reversed(backups_of(None)) if not hub_problem(path)), None)


def hub_problem(path: Path, name: str = "hub.db") -> str:
    problem = _file_problem(path)
    if problem:
        return problem
    try:
        with closing(files.open_database(path, mode="rw" if path.parent == env.home() else "ro")) as connection:
            faults = [" ".join(text.split()) for (text,) in connection.execute("PRAGMA integrity_check(3)")]
            tables = {table for (table,) in connection.execute("SELECT name FROM sqlite_master")}
    except files.OperationalError as error:  # such as a full or a read-only disk
        return f"the file cannot be read: {error}"
    except files.Error as error:
        return f"the file is damaged: {error}"
    if faults != ["ok"]:
        return f"the file is damaged: {'; '.join(faults)[:500]}"
    if not tables:
        return "the file is empty"
    return "" if HUB_TABLES[name] in tables else f"the file is a database, but not the hub's {name}"


def foreign_log(store: StoreId) -> str:
    event = log.events().exclude(project_id=store.name).first()
    return f"the log is of {event.project_id!r}, not of {store.name!r}" if event else ""


# Finds an older store that was put back with its anchor (decision 37). Nothing is compared if a restore or an
# accepted loss is newer than the backup.
def compared_with_backup(store: StoreId) -> str:
    if machines.SHARED:
        return ""
    backups = backups_of(store)
    restored = [made_at(path) for path in kept_before_restores(store) if path.name.endswith(BEFORE_RESTORE)]
    if not backups or clock.is_misdated(made_at(backups[-1])):
        return ""  # the clock was ahead when it was made, so it may be from before a restore
    losses = log.events().of_type(log.LOSS_ACCEPTED).values_list("occurred_at", flat=True)
    if max([*restored, *map(clock.from_text, losses)], default=_NEVER) >= made_at(backups[-1]):
        return ""
    newest = examine_backup(backups[-1], store)
    return "" if newest.problem else _difference(newest)


def _difference(backup: Examined) -> str:
    position, _ = log.head()
    which = f"the backup of {made_at(backup.path):%Y-%m-%d %H:%M} UTC"
    if position < backup.position:
        return f"the log ends at #{position}, but {which} has #{backup.position}"
    if backup.position and log.digest_at(backup.position) != backup.digest:
        return f"#{backup.position} is not the event that {which} has"
    return ""


# Not by SQLite: it takes an empty file for an empty database
def _file_problem(path: Path) -> str:
    try:
        with path.open("rb") as file:
            start = file.read(len(_HEADER))
    except OSError as error:
        return f"the file cannot be read ({error.strerror})"
    if not start:
        return "the file is empty"
    return "" if start == _HEADER else "the file is not a database"


# ``anchored``: a position and its digest that must be in the copy
def require_sound(anchored: tuple[int, str] | None = None) -> int:
    problem = integrity.damage()
    if problem:
        raise Unavailable(problem)
    verification = log.verify()
    if not verification.ok and not verification.ahead:
        raise Unavailable(verification.describe())
    if anchored and anchored[0] and log.digest_at(anchored[0]) != anchored[1]:
        raise Unavailable(f"#{anchored[0]}, which is anchored outside the store, is not in its log: its tail was cut")
    return verification.events
