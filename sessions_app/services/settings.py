"""Changing a project's settings."""

from __future__ import annotations

from memoryhub.core import log
from sessions_app.events import PROJECT_CONFIGURED, ProjectConfigured
from sessions_app.schemas import SettingsChange
from sessions_app.settings import ProjectSettings, check_settings, project_settings


def change_settings(*, command: SettingsChange) -> ProjectSettings:
    """Change settings of the current project, and return all as they are now.

    Raises:
        Invalid: a name is unknown or a value is not one that the setting takes; nothing was changed.
    """
    check_settings(command.settings)
    draft = log.prepare(PROJECT_CONFIGURED, ProjectConfigured(settings=command.settings))
    with log.transaction():
        log.append(draft, stream="project")
        return project_settings()
