"""Is the hub enabled for a folder? Standard library only: hooks and the MCP front check it before all else."""

# No store or home folder is created or opened to find out, so that a disabled hub leaves nothing behind.

from __future__ import annotations

import os

from memoryhub import env
from memoryhub.core.foreign_files import SETTINGS_BYTES, check_toml, read_foreign

VARIABLE = "MEMORY_HUB_ENABLED"
SETTING = "enabled"
_OFF = frozenset({"false", "0", "no", "off"})
# The hub's own file is read up to this size
_CONFIG_BYTES = 1024 * 1024


def switched_off_by(folder: str | None = None) -> str:
    """Return what disables the hub for a folder, by default the working folder; "" if it is enabled.

    The first of these that decides it counts: the environment, the hub's ``config.toml``, the nearest
    ``.memory-hub.toml``. Unreadable files disable nothing.
    """
    value = os.environ.get(VARIABLE)
    if value is not None:
        return f"{VARIABLE}={value}" if value.strip().lower() in _OFF else ""
    if folder is None:
        folder = env.working_folder_text()
    return switched_off_in(folder)


def switched_off_in(folder: str) -> str:
    """Return which file disables the hub for a folder, as ``switched_off_by`` without this process's environment."""
    path = f"{env.home_text()}/config.toml"
    enabled = _enabled_in(_read_text(path, limit=_CONFIG_BYTES))
    if enabled is None and (path := _nearest_file(folder)):
        text = _read_text(path)
        try:
            check_toml(text)
        except ValueError:
            return ""  # it would take too long to parse
        enabled = _enabled_in(text)
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


def _read_text(path: str, limit: int = SETTINGS_BYTES) -> str:
    try:
        return read_foreign(path, limit=limit).decode()
    except (OSError, ValueError):
        return ""


def _enabled_in(text: str) -> bool | None:
    if SETTING not in text:
        return None
    import tomllib  # here, because the import takes as long as a whole hook may

    try:
        value = tomllib.loads(text).get(SETTING)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, bool) else None
