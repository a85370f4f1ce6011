"""Where backups are, and how they are named."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.disk import make_folder
from memoryhub.core.stores.store import StoreId

BEFORE_RESTORE = "-before-restore.db"
BEFORE_REBUILD = "-before-rebuild.db"
BUNDLE = ".bundle"
_NAME = re.compile(r"\d{8}T\d{9}Z\.db")
_NAME_OF_BUNDLE = re.compile(r"\d{8}T\d{9}Z\.bundle")
_NAME_BEFORE = re.compile(r"\d{8}T\d{9}Z-before-(restore|rebuild)\.db")


def folder_of(store: StoreId | None) -> Path:
    return env.home() / "backups" / (f"{store.scope}-{store.name}" if store else "hub")


# Oldest first
def backups_of(store: StoreId | None) -> list[Path]:
    return _in_order(path for path in folder_of(store).glob("*.db") if _NAME.fullmatch(path.name))


def bundles_of(store: StoreId) -> list[Path]:
    return _in_order(path for path in folder_of(store).glob(f"*{BUNDLE}") if _NAME_OF_BUNDLE.fullmatch(path.name))


# Those of the future first: they are from a time when the clock was ahead, and must not pass for the newest until then
def _in_order(paths: Iterable[Path]) -> list[Path]:
    latest = clock.file_stamp(clock.now() + clock.MISDATED_AFTER)
    return sorted(paths, key=lambda path: (path.name < latest, path.name))


# Copies from before a restore or rebuild, oldest first
def kept_before_restores(store: StoreId) -> list[Path]:
    return sorted(path for path in folder_of(store).glob("*.db") if _NAME_BEFORE.fullmatch(path.name))


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
    folder = folder_of(store)
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
