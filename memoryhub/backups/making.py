"""Making a backup: copied at one moment, verified, and only then given its name."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from memoryhub import env
from memoryhub.backups import copying
from memoryhub.backups.outlived import TakenOut
from memoryhub.core import clock, log, rows
from memoryhub.core.errors import Conflict, Invalid, Unavailable
from memoryhub.core.integrity import damage
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.store_files import make_folder, sync
from memoryhub.core.stores import StoreId, current_store
from memoryhub.core.wording import counted

KEPT = 7
_STAMP_LENGTH = len("20261120T083000000")
KEPT_BEFORE_RESTORE = 2
BEFORE_RESTORE = "-before-restore.db"
BEFORE_REBUILD = "-before-rebuild.db"
_NAME = re.compile(r"\d{8}T\d{9}Z\.db")
_NAME_BEFORE = re.compile(r"\d{8}T\d{9}Z-before-(restore|rebuild)\.db")


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was just made and verified."""

    path: Path
    events: int
    removed: int
    """Older ones that went."""

    def describe(self) -> str:
        """Return what was done as one sentence."""
        return f"{counted(self.events, 'event')} copied and verified: {self.path}"


def folder_of(store: StoreId | None) -> Path:
    """Return where a store's backups are, or hub.db's; it may not exist yet."""
    return env.home() / "backups" / (f"{store.scope}-{store.name}" if store else "hub")


def backups_of(store: StoreId | None) -> list[Path]:
    """Return a store's backups, or hub.db's, the oldest first."""
    return sorted(path for path in folder_of(store).glob("*.db") if _NAME.fullmatch(path.name))


def kept_before_restores(store: StoreId) -> list[Path]:
    """Return the copies of a store as it was before it was restored or built anew, the oldest first."""
    return sorted(path for path in folder_of(store).glob("*.db") if _NAME_BEFORE.fullmatch(path.name))


def path_to_keep(store: StoreId, suffix: str) -> Path:
    """Return where to keep a store's file as it is before it is replaced, in a folder that exists.

    Args:
        store: whose file it is.
        suffix: ``BEFORE_RESTORE`` or ``BEFORE_REBUILD``.
    """
    return _new_path(store).with_name(f"{_stamp()}Z{suffix}")


def made_at(backup: Path) -> datetime:
    """Return when a backup was made, or a store was kept beside, by the name of its file."""
    return datetime.strptime(backup.name[:_STAMP_LENGTH], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)


def backups_kept() -> int:
    """Return how many backups of each store are kept: ``MEMORY_HUB_BACKUPS``, else 7.

    Raises:
        Invalid: the setting is no number from 1.
    """
    given = os.environ.get("MEMORY_HUB_BACKUPS", str(KEPT))
    if not given.isdecimal() or int(given) < 1:
        raise Invalid(f"MEMORY_HUB_BACKUPS is {given[:40]!r}; it must be a number from 1")
    return int(given)


def back_up_store() -> Backup:
    """Back up the current store to its folder, and remove the oldest, and those that hold what a person took out since.

    Of what restores have kept beside, the last two stay in the same way.

    Raises:
        Unavailable: the copy is not sound: neither is the store, then; no backup is made, and none goes.
    """
    store = current_store()
    kept = backups_kept()
    _require_own_log(store)
    target = _new_path(store)
    events = _copy_verified(store, target)
    return Backup(target, events, _prune(store, kept, TakenOut.of_current_store()))


def _require_own_log(store: StoreId) -> None:
    """Refuse a log that is not the one of the earlier backups: backups of it would soon replace them all."""
    from memoryhub.backups.soundness import compared_with_backup, foreign_log  # which reads backups by this module

    problem = foreign_log(store) or compared_with_backup(store)
    if problem:
        raise Unavailable(f"{problem}; `memory-hub doctor` says how to mend it")


def back_up_store_to(path: Path) -> Backup:
    """Back up the current store to a file that does not exist yet.

    Raises:
        Conflict: it exists.
        Unavailable: the copy is not sound, or cannot be written.
    """
    if path.exists():
        raise Conflict(f"{path} exists already; name another file")
    if not path.parent.is_dir():
        raise Unavailable(f"{path} cannot be written: there is no folder {path.parent}")
    return Backup(path, _copy_verified(current_store(), path), 0)


def back_up_hub() -> Path:
    """Back up hub.db: who may come in, and what the jobs did."""
    target = _new_path(None)
    draft = _draft(target)
    try:
        copying.copy_database(env.home() / "hub.db", draft)
        copying.make_single(draft)
        with closing(copying.connect(draft)) as connection:
            _require_whole(connection)
        _put(draft, target)
    finally:
        copying.remove_database(draft)
    for path in backups_of(None)[: -backups_kept()]:
        path.unlink()
    _remove_drafts(target.parent)
    return target


def _require_whole(connection: sqlite3.Connection) -> None:
    found = [text for (text,) in connection.execute("PRAGMA integrity_check")]
    if found != ["ok"]:
        raise Unavailable(f"hub.db is damaged: {'; '.join(found)[:500]}")


def _copy_verified(store: StoreId, target: Path) -> int:
    """Copy a store to ``target``, which appears when the copy is known to be sound; return its number of events."""
    draft = _draft(target)
    anchored = _anchored(store)
    try:
        copying.copy_database(store.path, draft)
        with copying.opened(draft):
            events = require_sound(anchored)
        copying.make_single(draft)
        _put(draft, target)
    finally:
        copying.remove_database(draft)
    return events


def _anchored(store: StoreId) -> tuple[int, str] | None:
    try:
        anchor = read_anchor(store)
    except ValueError as error:
        raise Unavailable("the anchor file beside the store cannot be read; `memory-hub doctor` says more") from error
    return (anchor.position, anchor.digest) if anchor else None


def require_sound(anchored: tuple[int, str] | None = None) -> int:
    """Return how many events the current copy has.

    Args:
        anchored: a position and its digest that were anchored before the copy was made.

    Raises:
        Unavailable: a page is damaged, the chain is broken, or it lacks what was anchored.
    """
    problem = damage()
    if problem:
        raise Unavailable(problem)
    found = log.verify()
    if not found.ok:
        raise Unavailable(found.describe())
    if anchored and anchored[0] and digest_at(anchored[0]) != anchored[1]:
        raise Unavailable(f"#{anchored[0]}, which is anchored outside the store, is not in its log: its tail was cut")
    return found.events


def digest_at(position: int) -> str | None:
    """Return the chain's digest at a position of the current store, None where it has none."""
    found = rows.fetch("SELECT chain_digest FROM raw_events WHERE position = %s", [position])
    return found[0][0] if found else None


def _new_path(store: StoreId | None) -> Path:
    folder = folder_of(store)
    env.prepare_home()
    make_folder(folder)
    return folder / f"{_stamp()}Z.db"


def _stamp() -> str:
    return clock.now().strftime("%Y%m%dT%H%M%S%f")[:-3]


def _draft(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.draft")


def _put(draft: Path, target: Path) -> None:
    """Give a finished copy its name, unless another process took that meanwhile."""
    try:
        os.link(draft, target)
    except FileExistsError as error:
        raise Conflict(f"{target} was made by another process just now") from error
    except OSError:  # a disk without links
        draft.rename(target)
    sync(target.parent)


def _prune(store: StoreId, kept: int, taken_out: TakenOut) -> int:
    """Remove the oldest, and those that hold what was taken out since, and return how many went."""
    backups = backups_of(store)
    old = backups[:-kept]
    old += [path for path in backups[-kept:-1] if taken_out.is_in(path)]
    old += _old_before_restores(store, taken_out)
    for path in old:
        copying.remove_database(path)
    _remove_drafts(folder_of(store))
    return len(old)


def _old_before_restores(store: StoreId, taken_out: TakenOut) -> list[Path]:
    """Return those that go of what restores kept: one that cannot be read, too, if text was taken out after it."""
    kept = kept_before_restores(store)
    recent = kept[-KEPT_BEFORE_RESTORE:]
    old = kept[:-KEPT_BEFORE_RESTORE]
    for path in recent:
        later = bool(taken_out.last_at) and clock.from_text(taken_out.last_at) > made_at(path)
        if taken_out.is_in(path, unread=later):
            old.append(path)
    return old


def _remove_drafts(folder: Path) -> None:
    """Remove what processes that died had begun."""
    for draft in folder.glob(".*.draft"):
        if not _is_alive(draft):
            copying.remove_database(draft)


def _is_alive(draft: Path) -> bool:
    pid = draft.name.split(".")[-2]
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True
