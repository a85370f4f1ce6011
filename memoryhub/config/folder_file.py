"""Which settings a folder's ``.memory-hub.toml`` may set: none that would weaken protection."""

# The file comes with the repository, which may be a stranger's. It never sets what is stored, what is a secret, what
# needs review, or which model is loaded.

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from memoryhub.config.folder import folder_settings_checked_by
from memoryhub.config.project_settings import InFolder, ProjectSettings, check_settings, setting_info
from memoryhub.core.errors import Invalid
from memoryhub.core.text import did_you_mean

# Keys of the file that are not settings: the project, and whether the hub is enabled.
NO_SETTINGS = ("project", "identity", "enabled")


def allowed_in_folders() -> list[str]:
    """Return the settings that a folder's file may set, to any value or to a stricter one."""
    return [name for name in ProjectSettings.model_fields if setting_info(name).in_folder is not InFolder.NOTHING]


@folder_settings_checked_by
def check_folder(path: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file."""
    values = {name: value for name, value in found.items() if name not in NO_SETTINGS}
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
    known = ", ".join((*NO_SETTINGS, *allowed))
    return f"there is no setting {name[:64]!r}{did_you_mean(name, allowed)}; known here are: {known}"


def _refuse_what_loosens(path: str, values: Mapping[str, Any], checked: ProjectSettings) -> None:
    for name in (name for name in values if setting_info(name).in_folder is InFolder.STRICTER):
        value, default = getattr(checked, name), ProjectSettings.model_fields[name].default
        if stricter := stricter_choices(name):
            if value not in stricter:
                known = " or ".join(map(repr, stricter))
                raise Invalid(f"{path}: setting {name!r} may only be {known} in a folder's file; remove it there")
        elif value > default:
            raise Invalid(
                f"{path}: setting {name!r} may be at most {default:g} in a folder's file, not {values[name]!r}; "
                "lower it there, or set it on the Settings page"
            )


def stricter_choices(name: str) -> list[str]:
    """Return the choices of a setting other than its default; none if it is a number."""
    default = ProjectSettings.model_fields[name].default
    return [str(choice) for choice in type(default) if choice is not default] if isinstance(default, Enum) else []
