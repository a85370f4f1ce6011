"""Which settings a folder's ``.memory-hub.toml`` may set: none that would weaken protection."""

# The file comes with the repository, which may be a stranger's. It never sets what is stored, what is a secret, what
# needs review, or which model is loaded.

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from memoryhub.config.folder import folder_settings_checked_by
from memoryhub.config.project_settings import ProjectSettings, check_settings
from memoryhub.config.retention_rules import TurnPolicy
from memoryhub.core.errors import Invalid

# Keys of the file that are not settings: the project, and whether the hub is enabled.
NO_SETTINGS = ("project", "identity", "enabled")
MAY_SAY = (
    "turn_policy",
    "ack_token_minutes",
    "capture_decisions",
    "capture_commits",
    "conflict_window_seconds",
    "search_mode",
    "rank_by_use",
    "ranking",
)
_NOT_ABOVE_DEFAULT = ("ack_token_minutes", "conflict_window_seconds")


@folder_settings_checked_by
def check_folder(path: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file."""
    values = {name: value for name, value in found.items() if name not in NO_SETTINGS}
    for name in values:
        if name not in MAY_SAY:
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
    near = difflib.get_close_matches(name, MAY_SAY, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return f"there is no setting {name[:64]!r}{meant}; known here are: {', '.join((*NO_SETTINGS, *MAY_SAY))}"


def _refuse_what_loosens(path: str, values: Mapping[str, Any], checked: ProjectSettings) -> None:
    if "turn_policy" in values and checked.turn_policy is not TurnPolicy.STRICT:
        raise Invalid(f"{path}: setting 'turn_policy' may only be 'strict' in a folder's file; remove it there")
    for name in _NOT_ABOVE_DEFAULT:
        default = ProjectSettings.model_fields[name].default
        if name in values and getattr(checked, name) > default:
            raise Invalid(
                f"{path}: setting {name!r} may be at most {default:g} in a folder's file, not {values[name]!r}; "
                "lower it there, or set it on the Settings page"
            )
