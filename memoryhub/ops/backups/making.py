"""Making a backup: copied at one moment, verified, and only then given its name."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.errors import Conflict, Invalid, Unavailable
from memoryhub.core.jobs import Run
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.log.digests import payload_digest
from memoryhub.core.log.redact import redacted_digests
from memoryhub.core.stores import rows
from memoryhub.core.stores.files import sync
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.core.text import counted
from memoryhub.ops.backups import copying
from memoryhub.ops.backups.copying import backups_of, folder_of, kept_before_restores, made_at, new_path
from memoryhub.ops.backups.soundness import compared_with_backup, foreign_log, require_sound

_ERASED = (
    "SELECT DISTINCT value FROM raw_events, json_each(raw_events.payload_json, '$.positions') "
    "WHERE event_type = 'payload.erased' AND source <> 'job'"
)
"""What grew old is let go of as the backups do."""
_EVENTS = "SELECT position, event_id FROM raw_events WHERE position IN (SELECT value FROM json_each(%s))"
_LAST = (
    "SELECT max(occurred_at) FROM raw_events WHERE event_type = 'payload.redacted' "
    "OR (event_type = 'payload.erased' AND source <> 'job')"
)
_PAYLOADS = (
    "SELECT position, event_id, salt, payload_json FROM raw_events "
    "WHERE payload_json IS NOT NULL AND position IN (SELECT value FROM json_each(?))"
)


@dataclass(frozen=True, slots=True)
class TakenOut:
    """The positions of a store from which a person has taken text."""

    erased: frozenset[int]
    """Those whose text is gone altogether."""
    redacted: dict[int, str]
    """Those of which a part is gone, with the digest of the payload that stands there now."""
    events: dict[int, str]
    """The id of the event of each: where a log was restored and went on another way, a position is another's too."""
    last_at: str
    """When that was done last; "" for never."""

    @classmethod
    def of_current_store(cls) -> TakenOut:
        """Return what was taken out of the current store so far."""
        erased = frozenset(position for (position,) in rows.fetch(_ERASED))
        redacted = {position: digest for position, digest in redacted_digests().items() if position not in erased}
        events = dict(rows.fetch(_EVENTS, [json.dumps([*erased, *redacted])]))
        return cls(erased, redacted, events, rows.fetch(_LAST)[0][0] or "")

    def is_in(self, backup: Path, *, unread: bool = False) -> bool:
        """Whether a backup has any of it.

        Args:
            backup: a copy of the store.
            unread: what is said of one that cannot be read; by itself it has nothing to restore.
        """
        try:
            with closing(copying.connect(backup)) as connection:
                found = connection.execute(_PAYLOADS, [json.dumps([*self.erased, *self.redacted])])
                return any(self._outlives(*row) for row in found)
        except (sqlite3.Error, TypeError, ValueError):
            return unread

    def _outlives(self, position: int, event_id: str, salt: str, payload_json: str) -> bool:
        if event_id != self.events.get(position):
            return False
        return position in self.erased or payload_digest(salt, payload_json) != self.redacted[position]


KEPT = 7
KEPT_BEFORE_RESTORE = 2


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
    target = new_path(store)
    events = _copy_verified(store, target)
    return Backup(target, events, _prune(store, kept, TakenOut.of_current_store()))


def _require_own_log(store: StoreId) -> None:
    """Refuse a log that is not the one of the earlier backups: backups of it would soon replace them all."""
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


def back_up_hub() -> Path | None:
    """Back up hub.db: who may come in, and what the jobs did. None if it does not exist, as where MCP alone is used."""
    source = env.home() / "hub.db"
    if not source.exists():
        return None
    target = new_path(None)
    draft = _draft(target)
    try:
        copying.copy_database(source, draft)
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
        if not copying.is_alive(draft.name.split(".")[-2]):
            copying.remove_database(draft)


def back_up_target(run: Run) -> str:
    """Back up the run's store, or hub.db."""
    if run.store is None:
        copied = back_up_hub()
        return f"hub.db copied and checked: {copied}" if copied else ""
    backup = back_up_store()
    run.report(backup.events, backup.events)
    return backup.describe()
