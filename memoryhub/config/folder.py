"""The settings in the nearest ``.memory-hub.toml`` of the folder that a client works in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from memoryhub.config.identity import settings_of_folder
from memoryhub.config.project_settings import InFolder, ProjectSettings, check_settings, setting_info
from memoryhub.core.errors import Invalid
from memoryhub.core.text import did_you_mean

# The file may come with someone else's repository, so it has the lowest priority, and ``folder_file`` registers a
# check of what it may set. An interface reads it when it knows the folder.


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """The settings of a folder, and the file that has them."""

    path: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    # The folder itself; "" for a client that works elsewhere, such as on another machine
    directory: str = field(default="", compare=False)


NO_FOLDER = FolderSettings()
_current: ContextVar[FolderSettings] = ContextVar("folder_settings", default=NO_FOLDER)


def read_folder(directory: Path, project: str) -> FolderSettings:
    """Return the settings of the nearest file; none if there is no file or it belongs to another project.

    Raises:
        Invalid: the file cannot be read or has a key that is not allowed; the message names file, key and fix.
    """
    path, keys = settings_of_folder(directory)
    if path is None or keys.get("project", project) != project:
        return FolderSettings(directory=str(directory))
    return FolderSettings(str(path), check_folder(str(path), keys), str(directory))


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


# The file comes with the repository, which may be a stranger's. It never sets what is stored, what is a secret, what
# needs review, or which model is loaded.


# Keys of the file that are not settings: the project, and whether the hub is enabled.
NO_SETTINGS = ("project", "identity", "enabled")


def allowed_in_folders() -> list[str]:
    """Return the settings that a folder's file may set, to any value or to a stricter one."""
    return [name for name in ProjectSettings.model_fields if setting_info(name).in_folder is not InFolder.NOTHING]


def check_folder(path: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file."""
    values = {name: value for name, value in keys.items() if name not in NO_SETTINGS}
    allowed = allowed_in_folders()
    for name in values:
        if name not in allowed:
            raise Invalid(f"{path}: {_refusal(name)}", path=path)
    try:
        checked = check_settings(values)
    except Invalid as error:
        raise Invalid(f"{path}: {error.message}; fix or remove it there", path=path) from error
    _refuse_what_loosens(path, values, checked)
    return values


def _refusal(name: str) -> str:
    if name in ProjectSettings.model_fields:
        return (
            f"setting {name!r} can't be set by a folder's file, because the file may be a stranger's; "
            "remove it there, and set it on the Settings page or in config.toml in the home folder"
        )
    allowed = allowed_in_folders()
    names = ", ".join((*NO_SETTINGS, *allowed))
    return f"there is no setting {name[:64]!r}{did_you_mean(name, allowed)}; known here are: {names}"


def _refuse_what_loosens(path: str, values: Mapping[str, Any], checked: ProjectSettings) -> None:
    for name in (name for name in values if setting_info(name).in_folder is InFolder.STRICTER):
        value, default = getattr(checked, name), ProjectSettings.model_fields[name].default
        if stricter := stricter_choices(name):
            if value not in stricter:
                choices = " or ".join(map(repr, stricter))
                raise Invalid(f"{path}: setting {name!r} may only be {choices} in a folder's file; remove it there")
        elif value > default:
            raise Invalid(
                f"{path}: setting {name!r} may be at most {default:g} in a folder's file, not {values[name]!r}; "
                "lower it there, or set it on the Settings page"
            )


def stricter_choices(name: str) -> list[str]:
    """Return the choices of a setting other than its default; none if it is a number."""
    default = ProjectSettings.model_fields[name].default
    if not isinstance(default, Enum):
        return []
    return [str(choice) for choice in type(default) if choice is not default]
