"""The settings that apply: to the current store's project and folder, and to the hub."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from memoryhub.config.layers import CONFIG_FILE, OF_THE_HUB, decided, decided_outside, of_the_project, read_config
from memoryhub.config.project_settings import ProjectSettings, check_settings
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.validation import explain


def project_settings() -> ProjectSettings:
    """Return the settings of the current store's project for the current folder."""
    layers = decided(ProjectSettings.model_fields)
    try:
        return ProjectSettings(**{name: value for name, (_, value) in layers.items()})
    except ValidationError as error:
        wrong = str(error.errors(include_url=False)[0]["loc"][0])
        raise Unavailable(f"setting {explain(error)}; fix it where it is set, in {layers[wrong][0]}") from error


def settings_decided_by() -> dict[str, str]:
    """Return the source of each setting that any source sets."""
    return {name: by for name, (by, _) in decided(ProjectSettings.model_fields).items()}


def settings_of_the_project() -> dict[str, Any]:
    """Return what the project itself sets, whether or not another source overrides it."""
    return {name: value for name, value in of_the_project().items() if name in ProjectSettings.model_fields}


def settings_decided_elsewhere() -> dict[str, str]:
    """Return the settings that the project itself cannot change, with their source."""
    return {name: by for name, (by, _) in decided_outside(ProjectSettings.model_fields).items()}


def config_problem() -> str:
    """Return what is wrong with ``config.toml`` or a variable, as one sentence; empty if nothing is."""
    try:
        check_settings({name: value for name, (_, value) in decided_outside(ProjectSettings.model_fields).items()})
    except Unavailable as error:
        return error.message
    except Invalid as error:
        return f"{error.message}; fix it where it is set, in the environment or {CONFIG_FILE} in the home folder"
    return ""


def unknown_in_config() -> list[str]:
    """Return the names in ``config.toml`` that are not settings and have no effect."""
    try:
        return sorted(set(read_config()) - set(ProjectSettings.model_fields) - OF_THE_HUB)
    except Unavailable:
        return []
