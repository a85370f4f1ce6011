"""The settings in the nearest ``.memory-hub.toml`` of the folder that a client works in."""

# The file may come with someone else's repository, so it has the lowest priority, and ``folder_file`` registers a
# check of what it may set. An interface reads it when it knows the folder.

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memoryhub.config.identity import settings_of_folder

# Takes the file's path and keys; returns the settings among them, or raises ``Invalid``.
Check = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """The settings of a folder, and the file that has them."""

    path: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    # The folder itself; "" for a client that works elsewhere, such as on another machine
    directory: str = field(default="", compare=False)


NO_FOLDER = FolderSettings()
_checks: list[Check] = []
_current: ContextVar[FolderSettings] = ContextVar("folder_settings", default=NO_FOLDER)


def folder_settings_checked_by(check: Check) -> Check:
    """Register the function that decides which keys of the file are settings."""
    _checks[:] = [check]
    return check


def read_folder(directory: Path, project: str) -> FolderSettings:
    """Return the settings of the nearest file; none if there is no file or it belongs to another project.

    Raises:
        Invalid: the file cannot be read or has a key that is not allowed; the message names file, key and fix.
    """
    path, found = settings_of_folder(directory)
    if path is None or found.get("project", project) != project or not _checks:
        return FolderSettings(directory=str(directory))
    return FolderSettings(str(path), _checks[0](str(path), found), str(directory))


def current_folder() -> FolderSettings:
    """Return the settings of the folder that the current call comes from."""
    return _current.get()


@contextmanager
def use_folder(settings: FolderSettings) -> Iterator[None]:
    """Apply a folder's settings inside the block."""
    token = _current.set(settings)
    try:
        yield
    finally:
        _current.reset(token)
