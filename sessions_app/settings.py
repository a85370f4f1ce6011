"""A project's settings: from the environment, then the hub's ``config.toml``, then the project's own.

The first of them that names a setting decides it.
"""

from __future__ import annotations

import json
import os
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memoryhub import env
from memoryhub.core import rows
from memoryhub.core.errors import Invalid
from memoryhub.core.validation import explain
from sessions_app.choices import TurnPolicy

PREFIX = "MEMORY_HUB_"
CONFIG_FILE = "config.toml"


class ProjectSettings(BaseModel):
    """What a project can be told."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    turn_policy: TurnPolicy = Field(TurnPolicy.AUTO, description="strict asks every write for an open turn's token")
    ack_token_minutes: int = Field(30, ge=1, le=24 * 60, description="a turn stays open so long after its last event")
    session_idle_hours: int = Field(12, ge=1, le=24 * 30, description="a session left open is ended after so long")
    capture_commits: bool = Field(True, description="record a commit that is seen in a tool's event")


def project_settings() -> ProjectSettings:
    """Return the settings of the current store's project.

    Raises:
        Invalid: a value is not one that the setting takes; the message says where it stands.
    """
    own = {name: json.loads(value) for name, value in rows.fetch("SELECT name, value FROM sessions_app_setting")}
    return _merged(_from_environment(), _from_file(_modified(_config_path())), own)


def check_settings(values: dict[str, Any]) -> ProjectSettings:
    """Return ``values`` as settings, the others and those that are None at their defaults.

    Raises:
        Invalid: a name is unknown or a value is not one that the setting takes.
    """
    unknown = sorted(set(values) - set(ProjectSettings.model_fields))
    if unknown:
        known = ", ".join(ProjectSettings.model_fields)
        raise Invalid(f"there is no setting {unknown[0]!r}; known are: {known}")
    return _merged({name: value for name, value in values.items() if value is not None})


def _merged(*sources: dict[str, Any]) -> ProjectSettings:
    values: dict[str, Any] = {}
    for source in reversed(sources):
        values |= source
    try:
        return ProjectSettings(**values)
    except ValidationError as error:
        raise Invalid(f"setting {explain(error)}") from error


def _from_environment() -> dict[str, Any]:
    named = {name: os.environ.get(PREFIX + name.upper()) for name in ProjectSettings.model_fields}
    return {name: value for name, value in named.items() if value is not None}


def _config_path() -> Path:
    return env.home() / CONFIG_FILE


def _modified(path: Path) -> tuple[Path, int]:
    try:
        return path, path.stat().st_mtime_ns
    except FileNotFoundError:
        return path, 0


@lru_cache(maxsize=8)
def _from_file(version: tuple[Path, int]) -> dict[str, Any]:
    path, modified = version
    if not modified:
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not valid TOML: {error}") from error
