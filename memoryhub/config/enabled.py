"""Is the hub enabled for a folder? Standard library only: hooks and the MCP front check it before all else."""

# No store or home folder is created or opened to find out, so that a disabled hub leaves nothing behind.

from __future__ import annotations

import os

from memoryhub import env
from memoryhub.core.foreign_files import CONFIG_BYTES, check_toml, is_off, read_text, switch_in

VARIABLE = "MEMORY_HUB_ENABLED"
SETTING = "enabled"


def switched_off_by(folder: str | None = None) -> str:
    """Return what disables the hub for a folder, by default the working folder; "" if it is enabled.

    The first of these that decides it counts: the environment, the hub's ``config.toml``, the nearest
    ``.memory-hub.toml``. Unreadable files disable nothing.
    """
    value = os.environ.get(VARIABLE)
    if value is not None:
        return f"{VARIABLE}={value}" if is_off(value) else ""
    if folder is None:
        folder = env.working_folder_text()
    return switched_off_in(folder)


def switched_off_in(folder: str) -> str:
    """Return which file disables the hub for a folder, as ``switched_off_by`` without this process's environment."""
    path = f"{env.home_text()}/config.toml"
    enabled = switch_in(read_text(path, limit=CONFIG_BYTES), SETTING)
    if enabled is None and (path := _nearest_file(folder)):
        text = read_text(path)
        try:
            check_toml(text)
        except ValueError:
            return ""  # it would take too long to parse
        enabled = switch_in(text, SETTING)
    return f"{SETTING} = false in {path}" if enabled is False else ""


def _nearest_file(folder: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111
    start = folder
    while folder != home or folder == start:
        path = f"{folder.rstrip('/')}/.memory-hub.toml"
        if os.path.exists(path):  # noqa: PTH110
            return path
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return ""
        folder = above
    return ""
