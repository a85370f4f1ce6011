"""Changing a project's settings."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from memoryhub.core import log
from memoryhub.core.errors import Invalid
from memoryhub.core.sanitize import use_rules
from sessions_app.events import PROJECT_CONFIGURED, ProjectConfigured
from sessions_app.own_rules import forget_rules
from sessions_app.schemas import SettingsChange
from sessions_app.secret_rules import compiled_rules
from sessions_app.settings import ProjectSettings, check_settings, project_settings, settings_decided_elsewhere


def change_settings(*, command: SettingsChange) -> ProjectSettings:
    """Change settings of the current project, and return all as they are now.

    Raises:
        Invalid: a name is unknown, a value is not one that the setting takes, or something else decides it.
    """
    _refuse_what_is_decided_elsewhere(command)
    checked = check_settings(command.settings)
    with _rules_of(command, checked):
        draft = log.prepare(PROJECT_CONFIGURED, ProjectConfigured(settings=command.settings))
    with log.transaction():
        log.append(draft, stream="project")
        settings = project_settings()
    forget_rules()
    return settings


def _refuse_what_is_decided_elsewhere(command: SettingsChange) -> None:
    """Refuse a change that would be kept and do nothing."""
    elsewhere = settings_decided_elsewhere()
    for name in command.settings:
        if name in elsewhere:
            raise Invalid(f"setting {name!r} is decided by {elsewhere[name]}; change it there, or take it out there")


def _rules_of(command: SettingsChange, checked: ProjectSettings) -> AbstractContextManager[None]:
    """Sanitise a change of the allow-list by itself: what it allows would be taken out of it otherwise."""
    if not command.settings.keys() & {"secret_rules", "secret_allow"}:
        return nullcontext()
    return use_rules(compiled_rules(tuple(checked.secret_rules), tuple(checked.secret_allow)))
