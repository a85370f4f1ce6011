"""Back up stores and the hub's own tables; examine the backups, which are files in the backups folder."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from django.db import DatabaseError
from django.db.models import Max

from memoryhub import env
from memoryhub.core import clock, log
from memoryhub.core.backends.base import Anchor
from memoryhub.core.backends.selected import integrity, machines, stores
from memoryhub.core.backends.sqlite import files
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.disk import make_folder, sync
from memoryhub.core.errors import ConflictError, HubError, Invalid, Unavailable
from memoryhub.core.jobs import Run
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.log.digests import payload_digest
from memoryhub.core.log.erase import redacted_digests
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.core.text import counted
from memoryhub.transfer.bundles.archive import create_bundle, open_bundle

BEFORE_RESTORE = "-before-restore.db"
BEFORE_REBUILD = "-before-rebuild.db"
BUNDLE = ".bundle"
_NAME = re.compile(r"\d{8}T\d{9}Z\.(db|bundle)")
_NAME_BEFORE = re.compile(r"\d{8}T\d{9}Z-before-(restore|rebuild)\.db")


def backup_folder(store: StoreId | None) -> Path:
    return env.home() / "backups" / (f"{store.scope}-{store.name}" if store else "hub")


# Oldest first, but those of the future before all: they are from a time when the clock was ahead, and must not pass
# for the newest until then
def backups_of(store: StoreId | None, kind: str = BUNDLE if machines.SHARED else ".db") -> list[Path]:
    latest = clock.file_stamp(clock.now() + clock.MISDATED_AFTER)
    paths = filter(lambda path: _NAME.fullmatch(path.name), backup_folder(store).glob(f"*{kind}"))
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
    for path in reversed(backups_of(store)):
        if not examine_backup(path, store).problem:
            return path
    return None


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
    backups = backups_of(store)
    if machines.SHARED or not backups or clock.is_misdated(made_at(backups[-1])):
        return ""  # the clock was ahead when it was made, so it may be from before a restore
    restored = [made_at(path) for path in kept_before_restores(store) if path.name.endswith(BEFORE_RESTORE)]
    losses = log.events().of_type(log.LOSS_ACCEPTED).values_list("occurred_at", flat=True)
    if max([*restored, *map(clock.from_text, losses)], default=_NEVER) >= made_at(backups[-1]):
        return ""
    backup = examine_backup(backups[-1], store)
    if backup.problem:
        return ""
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


# Returns the number of events, with the anchored one among them
def require_sound(anchor: Anchor | None = None) -> int:
    problem = integrity.damage()
    if problem:
        raise Unavailable(problem)
    verification = log.verify()
    if not verification.ok and not verification.ahead:
        raise Unavailable(verification.describe())
    if anchor and anchor.position and log.digest_at(anchor.position) != anchor.digest:
        raise Unavailable(
            f"#{anchor.position}, which is anchored outside the store, is not in its log: its tail was cut"
        )
    return verification.events


def has_nothing_to_back_up() -> bool:
    # A bundle has one event at least
    return machines.SHARED and not log.head()[0]


def back_up(to: Path | None = None) -> Backup:
    """Back up the current store to the backups folder, or to a file.

    Raises:
        ConflictError: the file exists.
        Unavailable: the store or its log is not sound, or the file cannot be written; no backup is made or removed.
    """
    if to is None:
        return export_store() if machines.SHARED else back_up_store()
    if to.exists():
        raise ConflictError(f"{to} already exists; choose another file")
    if not to.parent.is_dir():
        raise Unavailable(f"can't write {to}: there is no folder {to.parent}")
    write = _write_bundle if machines.SHARED else _copy_verified
    return Backup(to, write(to), 0)


# Returns a line on what was done
def back_up_hub_tables() -> str:
    if machines.SHARED:
        return "people, tokens, schedules: only in the database; back it up by its server's means"
    return f"{stores.HUB_NAME}: {back_up_hub() or 'does not exist yet'}"


def back_up_target(run: Run) -> str:
    if run.store is None:
        copied = None if machines.SHARED else back_up_hub()
        return f"hub.db copied and verified: {copied}" if copied else ""
    if has_nothing_to_back_up():
        return ""
    backup = back_up()
    run.report(backup.events, backup.events)
    return backup.describe()


def require_restorable() -> None:
    if machines.SHARED:
        raise Invalid(
            "the stores are in PostgreSQL: `memory-hub bundle apply FILE` brings back a bundle of the backups "
            "folder, and the server's own backups bring back the whole database"
        )


# The time of the last redaction or erasure by a person or client, or ""
def _last_removal() -> str:
    removals = log.events().of_type(log.PAYLOAD_ERASED, log.PAYLOAD_REDACTED)
    removals = removals.exclude(event_type=log.PAYLOAD_ERASED.name, source="job")
    return removals.aggregate(last=Max("occurred_at"))["last"] or ""


_PAYLOADS = (
    "SELECT position, event_id, salt, payload_json FROM raw_events "
    "WHERE payload_json IS NOT NULL AND position IN (SELECT value FROM json_each(?))"
)


# Positions from which text was removed. Backups that still contain it are deleted.
@dataclass(frozen=True, slots=True)
class TakenOut:
    # Without payload now
    erased: frozenset[int]
    # With the digest of the remaining payload (decision 28)
    redacted: dict[int, str]
    # Event ids: after a restore, a position can belong to another event
    events: dict[int, str]
    # ISO 8601; "" for never
    last_at: str

    @classmethod
    def of_current_store(cls) -> TakenOut:
        # By people and clients. Retention runs as a job: what it deletes expires with the backups.
        erasures = log.events().of_type(log.PAYLOAD_ERASED).exclude(source="job")
        erased = frozenset().union(*(payload["positions"] for payload in erasures.payloads().values()))
        redacted = {position: digest for position, digest in redacted_digests().items() if position not in erased}
        events = dict(log.events().at([*erased, *redacted]).values_list("position", "event_id"))
        return cls(erased, redacted, events, _last_removal())

    # ``unread`` is the answer for a file that can't be read
    def is_in(self, backup: Path, *, unread: bool = False) -> bool:
        try:
            with closing(files.open_database(backup)) as connection:
                payloads = connection.execute(_PAYLOADS, [json.dumps([*self.erased, *self.redacted])])
                return any(self._outlives(*row) for row in payloads)
        except (files.Error, TypeError, ValueError):
            return unread

    def _outlives(self, position: int, event_id: str, salt: str, payload_json: str) -> bool:
        if event_id != self.events.get(position):
            return False
        return position in self.erased or payload_digest(salt, payload_json) != self.redacted[position]


KEPT = 7
KEPT_BEFORE_RESTORE = 2


@dataclass(frozen=True, slots=True)
class Backup:
    path: Path
    events: int
    # Number of old backups removed
    removed: int

    def describe(self) -> str:
        return f"{counted(self.events, 'event')} copied and verified: {self.path}"


def backups_kept() -> int:
    text = os.environ.get("MEMORY_HUB_BACKUPS", str(KEPT))
    if not text.isdecimal() or int(text) < 1:
        raise Invalid(f"MEMORY_HUB_BACKUPS is {text[:40]!r}; it must be a number of at least 1")
    return int(text)


def back_up_store() -> Backup:
    """Back up the current store; remove the oldest backups, and those with text that was removed since.

    Raises:
        Unavailable: the copy is not sound, so neither is the store; no backup is made or removed.
    """
    store = current_store()
    retained = backups_kept()
    # Backups of an older store that was put back would replace the good ones (decision 37)
    problem = foreign_log(store) or compared_with_backup(store)
    if problem:
        raise Unavailable(f"{problem}; run `memory-hub doctor` for the repair")
    target = new_path(store)
    events = _copy_verified(target)
    taken_out = TakenOut.of_current_store()
    old, recent = _old_and_recent(target, backups_of(store), retained)
    old += [path for path in recent if taken_out.is_in(path)]
    old += _old_before_restores(store, taken_out)
    for path in old:
        files.remove_database(path)
    _remove_drafts(backup_folder(store))
    return Backup(target, events, len(old))


# ``target`` has just been made, so it stays: where the clock is behind, it is not the last one
def _old_and_recent(target: Path, paths: list[Path], retained: int) -> tuple[list[Path], list[Path]]:
    earlier = [path for path in paths if path != target]
    first = max(0, len(earlier) - retained + 1)
    return earlier[:first], earlier[first:]


# None if hub.db does not exist, as where only MCP is used
def back_up_hub() -> Path | None:
    source = env.home() / "hub.db"
    if not source.exists():
        return None
    target = new_path(None)
    draft = draft_of(target)
    try:
        files.copy_database(source, draft)
        files.make_single(draft)
        with closing(files.open_database(draft)) as connection:
            faults = [text for (text,) in connection.execute("PRAGMA integrity_check")]
        if faults != ["ok"]:
            raise Unavailable(f"hub.db is damaged: {'; '.join(faults)[:500]}")
        _put(draft, target)
    finally:
        files.remove_database(draft)
    for path in backups_of(None)[: -backups_kept()]:
        if path != target:  # the clock may be behind
            path.unlink()
    _remove_drafts(target.parent)
    return target


# ``target`` appears only after the copy was verified
def _copy_verified(target: Path) -> int:
    store = current_store()
    draft = draft_of(target)
    try:
        anchor = read_anchor(store)
    except ValueError as error:
        raise Unavailable("can't read the store's anchor; run `memory-hub doctor`") from error
    try:
        files.copy_database(path_of(store), draft)
        with files.opened(draft):
            events = require_sound(anchor)
        files.make_single(draft)
        _put(draft, target)
    finally:
        files.remove_database(draft)
    return events


def draft_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.draft")


def _put(draft: Path, target: Path) -> None:
    try:
        os.link(draft, target)
    except FileExistsError as error:
        raise ConflictError(f"another process has just created {target}") from error
    except OSError:  # the disk has no hard links
        draft.rename(target)
    sync(target.parent)


# An unreadable copy also goes if text was removed after it was made
def _old_before_restores(store: StoreId, taken_out: TakenOut) -> list[Path]:
    copies = kept_before_restores(store)
    old = copies[:-KEPT_BEFORE_RESTORE]
    for path in copies[-KEPT_BEFORE_RESTORE:]:
        later = bool(taken_out.last_at) and clock.from_text(taken_out.last_at) > made_at(path)
        if taken_out.is_in(path, unread=later):
            old.append(path)
    return old


def _remove_drafts(folder: Path) -> None:
    for draft in folder.glob(".*.draft"):
        if not is_alive(draft.name.split(".")[-2]):
            files.remove_database(draft)


def export_store() -> Backup:
    """Write the current store to a bundle, and check it; remove the oldest bundles.

    After a redaction or an erasure, all that were written before it are removed.

    Raises:
        Unavailable: the log is not as it was written; no bundle is made or removed.
    """
    store = current_store()
    target = new_path(store).with_suffix(BUNDLE)
    events = _write_bundle(target)
    old, recent = _old_and_recent(target, backups_of(store, BUNDLE), backups_kept())
    if removed := _last_removal():
        moment = clock.from_text(removed)
        # Where the clock was ahead when a bundle was written, the time in its name says nothing
        old += [path for path in recent if made_at(path) <= moment or clock.is_misdated(made_at(path))]
    for path in old:
        path.unlink(missing_ok=True)
    return Backup(target, events, len(old))


def _write_bundle(path: Path) -> int:
    manifest = create_bundle(path)
    for _ in open_bundle(path, lambda: "").events():
        pass  # each is checked when it is read
    return manifest.events
