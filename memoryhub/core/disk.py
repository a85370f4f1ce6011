"""Files and folders that survive a power cut."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from memoryhub import env


def make_folder(folder: Path) -> None:
    """Create a private folder of the home, and sync it and all folders above."""
    # A power cut can remove an unsynced folder together with synced files in it.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    home = env.home()
    for parent in folder.parents:
        if not parent.is_relative_to(home):
            break
        sync(parent)
    with suppress(PermissionError):  # the user may enter the folder, but not read it
        sync(home.parent)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
