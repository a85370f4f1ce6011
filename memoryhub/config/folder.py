"""What the folder that a client works in says of its project: the keys of the nearest ``.memory-hub.toml``.

The file may come with a repository that somebody else wrote, so it is the last that is asked, and which of its keys
may say what is not decided here: whoever knows the settings registers a check. A door reads the file when it knows
the folder, and holds what it says for all that is done inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memoryhub.config.identity import settings_of_folder

Check = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""Is given the file's path and its keys; returns the settings among them, or raises ``Invalid``."""


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """The settings of a folder, and the file that says them."""

    path: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


NO_FOLDER = FolderSettings()
_checks: list[Check] = []
_current: ContextVar[FolderSettings] = ContextVar("folder_settings", default=NO_FOLDER)


def folder_settings_checked_by(check: Check) -> Check:
    """Register what tells which keys of the file are settings."""
    _checks[:] = [check]
    return check


def read_folder(directory: Path, project: str) -> FolderSettings:
    """Return what the nearest file says of a project; nothing where there is none, or it is another project's.

    Args:
        directory: where a client works.
        project: the id of the project that is served.

    Raises:
        Invalid: the file cannot be read, or says what it may not; the message names the file, the key and the fix.
    """
    path, found = settings_of_folder(directory)
    if path is None or found.get("project", project) != project or not _checks:
        return NO_FOLDER
    return FolderSettings(str(path), _checks[0](str(path), found))


def current_folder() -> FolderSettings:
    """Return the settings of the folder for which something is done now."""
    return _current.get()


@contextmanager
def use_folder(settings: FolderSettings) -> Iterator[None]:
    """Let what a folder says hold inside the block."""
    token = _current.set(settings)
    try:
        yield
    finally:
        _current.reset(token)
