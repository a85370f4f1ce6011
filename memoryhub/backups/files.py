"""Where backups are: their folders, their names, and when each was made."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.store_files import make_folder
from memoryhub.core.stores import StoreId

BEFORE_RESTORE = "-before-restore.db"
BEFORE_REBUILD = "-before-rebuild.db"
_STAMP_LENGTH = len("20261120T083000000")
_NAME = re.compile(r"\d{8}T\d{9}Z\.db")
_NAME_BEFORE = re.compile(r"\d{8}T\d{9}Z-before-(restore|rebuild)\.db")


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
    return new_path(store).with_name(f"{_stamp()}Z{suffix}")


def made_at(backup: Path) -> datetime:
    """Return when a backup was made, or a store was kept beside, by the name of its file."""
    return datetime.strptime(backup.name[:_STAMP_LENGTH], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)


def new_path(store: StoreId | None) -> Path:
    """Return the path of a backup that is made now, in a folder that exists."""
    folder = folder_of(store)
    env.prepare_home()
    make_folder(folder)
    return folder / f"{_stamp()}Z.db"


def _stamp() -> str:
    return clock.now().strftime("%Y%m%dT%H%M%S%f")[:-3]
