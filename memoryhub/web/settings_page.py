"""The page of a project's settings, by topic: value, source, and fields to change or reset each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from memoryhub.config.current_settings import (
    project_settings,
    settings_decided_by,
    settings_decided_elsewhere,
    settings_of_the_project,
)
from memoryhub.config.folder import read_folder
from memoryhub.config.identity import bound_folders
from memoryhub.config.project_settings import (
    GROUP_HELP,
    Group,
    ProjectSettings,
    check_settings,
    setting_info,
    setting_label,
)
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.stores.store import Scope, current_store
from memoryhub.core.text import as_sentence
from memoryhub.web.setting_forms import SettingForm, help_of, setting_form
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings

# Topics that also have a page of their own, and whether their settings are changed there only
_PAGES = {Group.RETENTION: ("governance_retentionrun_changelist", False), Group.SECRETS: ("secrets", True)}


@dataclass
class Setting:
    """A setting on the page: its form, and what decides its value."""

    name: str
    value: Any
    # What the project itself sets, or None
    own: Any
    # The source that overrides the project, or ""
    elsewhere: str
    # Values in the files of the project's folders, as (file, value)
    in_folders: list[tuple[str, str]]
    posted: QueryDict | None = None
    error: str = ""

    @cached_property
    def form(self) -> SettingForm:
        is_posted = self.posted is not None and any(key.startswith(f"{self.name}-") for key in self.posted)
        return setting_form(self.name, self.value, self.posted if is_posted else None)

    @property
    def group(self) -> Group:
        return setting_info(self.name).group

    @property
    def is_read_only(self) -> bool:
        return bool(self.elsewhere) or _PAGES.get(self.group, ("", False))[1]

    @property
    def label(self) -> str:
        return setting_label(self.name)

    @property
    def help(self) -> str:
        return help_of(self.name)

    @property
    def shown(self) -> str:
        return shown(self.name, self.value)

    @property
    def shown_own(self) -> str:
        return shown(self.name, _value_of(self.name, self.own))

    @property
    def shown_default(self) -> str:
        return shown(self.name, _value_of(self.name, None))

    def change(self, before: Any) -> dict[str, Any]:
        """Return the change that was typed, compared with what the project set when the page was shown."""
        if self.is_read_only or not self.form.form.is_bound:
            return {}
        try:
            typed = self.form.value()
        except Invalid as error:
            self.error = f"{error.message}."
            return {}
        is_same = _value_of(self.name, typed) == _value_of(self.name, before)
        return {} if is_same and (typed is not None or before is None) else {self.name: typed}


def _value_of(name: str, value: Any) -> Any:
    return check_settings({name: value}).model_dump(mode="json")[name]


class SettingsForm:
    """All settings of the current store, with what was posted."""

    def __init__(self, posted: QueryDict | None = None) -> None:
        values, project_values = project_settings().model_dump(mode="json"), settings_of_the_project()
        elsewhere, self.folders = settings_decided_elsewhere(), _folders()
        self.before = _before(posted, project_values)
        self.settings = [
            Setting(
                name,
                values[name],
                project_values.get(name),
                elsewhere.get(name, ""),
                _in_folders(self.folders, name),
                posted,
            )
            for name in ProjectSettings.model_fields
        ]

    def groups(self) -> list[dict[str, Any]]:
        """Return each topic with its settings, its text, and its own page if it has one."""
        groups = []
        for group in Group:
            settings = [setting for setting in self.settings if setting.group is group]
            page, _ = _PAGES.get(group, ("", False))
            changed = sum(setting.own is not None for setting in settings)
            groups.append(
                {"name": group, "help": GROUP_HELP[group], "page": page, "settings": settings, "own": changed}
            )
        return groups

    @property
    def errors(self) -> list[Setting]:
        return [setting for setting in self.settings if setting.error]

    @property
    def before_json(self) -> str:
        return json.dumps(self.before)

    def changes(self) -> dict[str, Any]:
        """Return the changed settings, with None to reset one to its default."""
        changes: dict[str, Any] = {}
        for setting in self.settings:
            changes |= setting.change(self.before.get(setting.name))
        return changes


def _before(posted: QueryDict | None, project_values: dict[str, Any]) -> dict[str, Any]:
    """Return what the project set when the page was shown, so that others' changes since then stay."""
    try:
        before = json.loads(posted.get("before", "") if posted else "")
        check_settings(before)
    except (json.JSONDecodeError, RecursionError, TypeError, Invalid):
        return project_values
    return dict(before)


def shown(name: str, value: Any) -> str:
    """Return a value as people read it."""
    info = setting_info(name)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, list):
        words = [info.choices.get(item, item) for item in value if isinstance(item, str)]
        return ", ".join(words) or (f"{len(value)} rule{'s' * (len(value) != 1)}" if value else "None")
    if isinstance(value, dict):
        return ", ".join(f"{part} {number:g}" for part, number in value.items()) or "None"
    if value is None or value == "never":
        return "Never"
    text = info.choices.get(str(value), f"{value:g}" if isinstance(value, float) else str(value))
    return f"{text} {info.unit}" if info.unit else text


def settings_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    form = SettingsForm(request.POST if request.method == "POST" else None)
    reset = request.POST.get("reset", "") if request.method == "POST" else ""
    if reset in ProjectSettings.model_fields:
        form = _reset(request, reset)
    elif request.method == "POST" and _save(request, form):
        return redirect("admin:settings")
    return TemplateResponse(request, "admin/settings.html", {**context, "form": form, "folders": form.folders})


def _reset(request: HttpRequest, name: str) -> SettingsForm:
    """Reset one setting at once, and show the page with what was typed into the others."""
    try:
        change_settings(command=SettingsChange(settings={name: None}))
    except HubError as error:
        messages.error(request, as_sentence(error.message))
        return SettingsForm(request.POST)
    posted = request.POST.copy()
    for key in [key for key in posted if key.startswith(f"{name}-")]:
        del posted[key]
    form = SettingsForm(posted)
    form.before.pop(name, None)
    value = next(setting.shown for setting in form.settings if setting.name == name)
    messages.success(request, f"Reset: {setting_label(name)} is {value}.")
    return form


def _save(request: HttpRequest, form: SettingsForm) -> bool:
    changes = form.changes()
    if form.errors:
        return False
    if not changes:
        messages.info(request, "No changes to save.")
        return True
    try:
        change_settings(command=SettingsChange(settings=changes))
    except HubError as error:
        messages.error(request, as_sentence(error.message))
        return False
    messages.success(request, f"Changed: {', '.join(setting_label(name) for name in changes)}.")
    return True


def _folders() -> list[dict[str, Any]]:
    """Return the settings in the files of the project's folders, with the source that overrides each."""
    project, sources = current_store().name, settings_decided_by()
    folders: list[dict[str, Any]] = []
    for folder in bound_folders(project) if current_store().scope is Scope.PROJECT else ():
        try:
            file = read_folder(folder, project)
        except Invalid as error:
            folders.append({"path": folder, "problem": f"{error.message}."})
        else:
            values = [
                {
                    "name": name,
                    "label": setting_label(name),
                    "value": shown(name, _value_of(name, value)),
                    "overridden_by": sources.get(name, ""),
                }
                for name, value in file.values.items()
            ]
            folders += [{"path": file.path, "values": values}] if values else []
    return folders


def _in_folders(folders: list[dict[str, Any]], name: str) -> list[tuple[str, str]]:
    values = [(folder["path"], value) for folder in folders for value in folder.get("values", ())]
    return [(path, value["value"]) for path, value in values if value["name"] == name and not value["overridden_by"]]
