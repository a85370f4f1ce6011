"""Back up stores and the hub's own tables."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.db.models import Max

from memoryhub import env
from memoryhub.core import clock, log
from memoryhub.core.backends.selected import machines, stores
from memoryhub.core.backends.sqlite import files
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.disk import sync
from memoryhub.core.errors import ConflictError, Invalid, Unavailable
from memoryhub.core.jobs import Run
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.log.digests import payload_digest
from memoryhub.core.log.erase import redacted_digests
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.core.text import counted
from memoryhub.ops.backups.files import (
    BUNDLE,
    backup_folder,
    backups_of,
    bundles_of,
    compared_with_backup,
    foreign_log,
    is_alive,
    kept_before_restores,
    made_at,
    new_path,
    require_sound,
)
from memoryhub.transfer.bundles.archive import create_bundle, open_bundle


def has_nothing_to_back_up() -> bool:
    """Return whether the current store is one without events that is backed up as a bundle, which has one at least."""
    return machines.SHARED and not log.head()[0]


def back_up(to: Path | None = None) -> Backup:
    """Back up the current store to the backups folder, or to a file.

    Raises:
        ConflictError: the file exists.
        Unavailable: the store or its log is not sound, or the file cannot be written; no backup is made or removed.
    """
    if machines.SHARED:
        return export_store_to(to) if to else export_store()
    return back_up_store_to(to) if to else back_up_store()


def back_up_hub_tables() -> str:
    """Back up people, tokens and schedules where they are in a file; return a line on what was done."""
    if machines.SHARED:
        return "people, tokens, schedules: only in the database; back it up by its server's means"
    return f"{stores.HUB_NAME}: {back_up_hub() or 'does not exist yet'}"


def back_up_target(run: Run) -> str:
    """Do the work of the job for a store, or for the hub's own tables."""
    if run.store is None:
        copied = None if machines.SHARED else back_up_hub()
        return f"hub.db copied and verified: {copied}" if copied else ""
    if has_nothing_to_back_up():
        return ""
    backup = back_up()
    run.report(backup.events, backup.events)
    return backup.describe()


def require_restorable() -> None:
    """Raise Invalid where the stores are in a database server, which has backups of its own."""
    if machines.SHARED:
        raise Invalid(
            "the stores are in PostgreSQL: `memory-hub bundle apply FILE` brings back a bundle of the backups "
            "folder, and the server's own backups bring back the whole database"
        )


# Erasures by people and clients. Retention runs as a job: what it deletes expires with the backups.
def _erasures() -> log.EventQuerySet:
    return log.events().of_type(log.PAYLOAD_ERASED).exclude(source="job")


def _last_removal() -> str:
    """Return the time of the last redaction or erasure by a person or client, or ""."""
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
        erased = frozenset().union(*(payload["positions"] for payload in _erasures().payloads().values()))
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
    _require_own_log(store)
    target = new_path(store)
    events = _copy_verified(store, target)
    return Backup(target, events, _prune_backups(target, store, retained, TakenOut.of_current_store()))


# Backups of an older store that was put back would replace the good ones (decision 37)
def _require_own_log(store: StoreId) -> None:
    problem = foreign_log(store) or compared_with_backup(store)
    if problem:
        raise Unavailable(f"{problem}; run `memory-hub doctor` for the repair")


def back_up_store_to(path: Path) -> Backup:
    if path.exists():
        raise ConflictError(f"{path} already exists; choose another file")
    if not path.parent.is_dir():
        raise Unavailable(f"can't write {path}: there is no folder {path.parent}")
    return Backup(path, _copy_verified(current_store(), path), 0)


# None if hub.db does not exist, as where only MCP is used
def back_up_hub() -> Path | None:
    source = env.home() / "hub.db"
    if not source.exists():
        return None
    target = new_path(None)
    draft = _draft(target)
    try:
        files.copy_database(source, draft)
        files.make_single(draft)
        with closing(files.open_database(draft)) as connection:
            _require_whole(connection)
        _put(draft, target)
    finally:
        files.remove_database(draft)
    for path in backups_of(None)[: -backups_kept()]:
        if path != target:  # the clock may be behind
            path.unlink()
    _remove_drafts(target.parent)
    return target


def _require_whole(connection: files.FileConnection) -> None:
    faults = [text for (text,) in connection.execute("PRAGMA integrity_check")]
    if faults != ["ok"]:
        raise Unavailable(f"hub.db is damaged: {'; '.join(faults)[:500]}")


# ``target`` appears only after the copy was verified
def _copy_verified(store: StoreId, target: Path) -> int:
    draft = _draft(target)
    anchored = _anchored(store)
    try:
        files.copy_database(path_of(store), draft)
        with files.opened(draft):
            events = require_sound(anchored)
        files.make_single(draft)
        _put(draft, target)
    finally:
        files.remove_database(draft)
    return events


def _anchored(store: StoreId) -> tuple[int, str] | None:
    try:
        anchor = read_anchor(store)
    except ValueError as error:
        raise Unavailable("can't read the store's anchor; run `memory-hub doctor`") from error
    return (anchor.position, anchor.digest) if anchor else None


def _draft(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.draft")


def _put(draft: Path, target: Path) -> None:
    try:
        os.link(draft, target)
    except FileExistsError as error:
        raise ConflictError(f"another process has just created {target}") from error
    except OSError:  # the disk has no hard links
        draft.rename(target)
    sync(target.parent)


# ``target`` has just been made, so it stays: where the clock is behind, it is not the last one
def _prune_backups(target: Path, store: StoreId, retained: int, taken_out: TakenOut) -> int:
    backups = [path for path in backups_of(store) if path != target]
    recent = backups[max(0, len(backups) - retained + 1) :]
    old = backups[: len(backups) - len(recent)]
    old += [path for path in recent if taken_out.is_in(path)]
    old += _old_before_restores(store, taken_out)
    for path in old:
        files.remove_database(path)
    _remove_drafts(backup_folder(store))
    return len(old)


# An unreadable copy also goes if text was removed after it was made
def _old_before_restores(store: StoreId, taken_out: TakenOut) -> list[Path]:
    copies_before = kept_before_restores(store)
    recent = copies_before[-KEPT_BEFORE_RESTORE:]
    old = copies_before[:-KEPT_BEFORE_RESTORE]
    for path in recent:
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
    return Backup(target, events, _prune_bundles(target, store, backups_kept()))


def export_store_to(path: Path) -> Backup:
    if not path.parent.is_dir():
        raise Unavailable(f"can't write {path}: there is no folder {path.parent}")
    if path.exists():
        raise ConflictError(f"{path} already exists; choose another file")
    return Backup(path, _write_bundle(path), 0)


def _write_bundle(path: Path) -> int:
    manifest = create_bundle(path)
    for _ in open_bundle(path, lambda: "").events():
        pass  # each is checked when it is read
    return manifest.events


def _prune_bundles(target: Path, store: StoreId, retained: int) -> int:
    bundles = [path for path in bundles_of(store) if path != target]
    recent = bundles[max(0, len(bundles) - retained + 1) :]
    old = bundles[: len(bundles) - len(recent)]
    removed_at = _last_removal()
    if removed_at:
        old += [path for path in recent if _may_be_from_before(path, clock.from_text(removed_at))]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


# By the time in its name; where the clock was ahead when it was written, that says nothing
def _may_be_from_before(bundle: Path, moment: datetime) -> bool:
    return made_at(bundle) <= moment or clock.is_misdated(made_at(bundle))
