"""Where VS Code, and the editors that are built on it, keep the data of their extensions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from memoryhub.config.repository import is_folder

_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf", "Trae", "Kiro", "Antigravity")
# On the machine that an editor is connected to
_SERVERS = (".vscode-server", ".vscode-server-insiders", ".vscodium-server", ".cursor-server", ".windsurf-server")


def user_folders(*editors: str) -> Iterator[Path]:
    """Yield the folders ``User`` of the editors of this machine, of all if none are named."""
    home = Path.home()
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    tops = (settings, home / "Library/Application Support")
    folders = [top / editor / "User" for top in tops for editor in editors or _EDITORS]
    if not editors:
        folders += [home / server / "data/User" for server in _SERVERS]
        folders.append(Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share") / "code-server/User")
    yield from filter(is_folder, folders)


def extension_folders(extension: str) -> list[Path]:
    """Return the folders in which an extension keeps its data."""
    folders = (user / "globalStorage" / extension for user in user_folders())
    return list(filter(is_folder, folders))
