"""Backups of stores that are in a database server: each is a bundle, which any hub can adopt.

The server has its own backups, which can also restore what is no store: people, tokens and schedules.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from memoryhub.core import clock
from memoryhub.core.errors import Conflict, Unavailable
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId, current_store
from memoryhub.ops.backups.making import LAST_REMOVAL, Backup, backups_kept
from memoryhub.ops.backups.paths import BUNDLE, bundles_of, made_at, new_path
from memoryhub.transfer.bundles.creating import create_bundle
from memoryhub.transfer.bundles.reading import open_bundle


def export_store() -> Backup:
    """Write the current store to a bundle, and check it; remove the oldest bundles.

    After a redaction or an erasure, all that were written before it are removed.

    Raises:
        Unavailable: the log is not as it was written; no bundle is made or removed.
    """
    store = current_store()
    target = new_path(store).with_suffix(BUNDLE)
    events = _written(target)
    return Backup(target, events, _prune(target, store, backups_kept()))


def export_store_to(path: Path) -> Backup:
    if not path.parent.is_dir():
        raise Unavailable(f"can't write {path}: there is no folder {path.parent}")
    if path.exists():
        raise Conflict(f"{path} already exists; choose another file")
    return Backup(path, _written(path), 0)


def _written(path: Path) -> int:
    manifest = create_bundle(path)
    for _ in open_bundle(path, lambda: "").events():
        pass  # each is checked when it is read
    return manifest.events


def _prune(target: Path, store: StoreId, kept: int) -> int:
    bundles = [path for path in bundles_of(store) if path != target]
    recent = bundles[max(0, len(bundles) - kept + 1) :]
    old = bundles[: len(bundles) - len(recent)]
    removed_at = rows.fetch(LAST_REMOVAL)[0][0]
    if removed_at:
        old += [path for path in recent if _may_be_from_before(path, clock.from_text(removed_at))]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


# By the time in its name; where the clock was ahead when it was written, that says nothing
def _may_be_from_before(bundle: Path, moment: datetime) -> bool:
    return made_at(bundle) <= moment or clock.is_misdated(made_at(bundle))
