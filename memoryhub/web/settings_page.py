"""The page of a project's settings: value, source, and a field to change each."""

from __future__ import annotations

import json
from enum import Enum
from functools import cache
from typing import Any, get_origin

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from pydantic.fields import FieldInfo

from memoryhub.config.folder import read_folder
from memoryhub.config.identity import bound_folders
from memoryhub.config.project_settings import (
    Group,
    ProjectSettings,
    project_settings,
    setting_info,
    settings_decided_by,
    settings_decided_elsewhere,
)
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.stores.store import Scope, current_store
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings

# Groups that also have a page of their own.
_PAGES = {Group.RETENTION: "governance_retentionrun_changelist", Group.SECRETS: "secrets"}
_CODE = forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "code"})
_YES_OR_NO = [("true", "yes"), ("false", "no")]


class SettingsForm(forms.Form):
    """A field for each setting. Only changed fields are saved."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        current = project_settings().model_dump(mode="json")
        fields = ProjectSettings.model_fields
        initial = {name: _shown(value, lines=_has_lines(fields[name])) for name, value in current.items()}
        super().__init__(*args, **{"label_suffix": "", "initial": initial, **kwargs})
        elsewhere, decided_by = settings_decided_elsewhere(), settings_decided_by()
        for name, about in ProjectSettings.model_fields.items():
            self.fields[name] = _field(name, about, elsewhere.get(name, ""), is_set=name in decided_by)

    def groups(self) -> list[tuple[str, str, list[forms.BoundField]]]:
        """Return each group's heading, page ("" if it has none) and fields."""
        return [
            (group, _PAGES.get(group, ""), [self[name] for name in self.fields if setting_info(name).group is group])
            for group in Group
        ]

    def changes(self) -> dict[str, Any] | None:
        """Return the changed settings, with None to reset one to its default; None if the form has errors."""
        if not self.is_valid():
            return None
        try:
            return {name: self._value(name) for name in self.changed_data}
        except json.JSONDecodeError as error:
            self.add_error(None, f"This is not valid JSON: {error.msg} in “{error.doc[:60]}”.")
            return None
        except RecursionError:
            self.add_error(None, "This is nested too deeply; use fewer levels.")
            return None

    def _value(self, name: str) -> Any:
        typed = self.cleaned_data[name].strip()
        if not typed:
            return None
        about = ProjectSettings.model_fields[name]
        if _has_lines(about):
            return [line.strip() for line in typed.splitlines() if line.strip()]
        return json.loads(typed) if _has_parts(about) else _read(typed, about)


def _field(name: str, about: FieldInfo, elsewhere: str, *, is_set: bool) -> forms.Field:
    text = f"{str(about.description)[:1].upper()}{str(about.description)[1:]}. "
    text += "One per line. " if _has_lines(about) else ""
    default = f"{'Set for this project. ' if is_set else ''}Default: {_default(about)}."
    text += f"Source: {elsewhere}." if elsewhere else default
    options: dict[str, Any] = {"required": False, "label": _label(name), "help_text": text}
    kind = about.annotation
    if kind is bool:
        field: forms.Field = forms.ChoiceField(choices=_YES_OR_NO, **options)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        field = forms.ChoiceField(choices=[(choice.value, choice.value) for choice in kind], **options)
    else:
        field = forms.CharField(widget=_CODE if _has_parts(about) else forms.TextInput(), **options)
    field.disabled, field.show_hidden_initial = bool(elsewhere), not elsewhere
    return field


def _has_parts(about: FieldInfo) -> bool:
    kind = about.annotation
    return get_origin(kind) in (list, dict) or hasattr(kind, "model_fields")


@cache
def _lists() -> frozenset[str]:
    """Return the settings that are lists of words, which have one word per line."""
    properties = ProjectSettings.model_json_schema()["properties"]
    return frozenset(name for name, schema in properties.items() if schema.get("items", {}).get("type") == "string")


def _has_lines(about: FieldInfo) -> bool:
    return any(about is ProjectSettings.model_fields[name] for name in _lists())


def _default(about: FieldInfo) -> str:
    value = _plain(about.get_default(call_default_factory=True))
    return "none" if value in ([], {}) else _short(value)


def _read(typed: str, about: FieldInfo) -> Any:
    """Return a number as a number, and a word, such as ``never``, unchanged."""
    if about.annotation is str:
        return typed
    try:
        return json.loads(typed)
    except json.JSONDecodeError:
        return typed


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return value.value if isinstance(value, Enum) else value


def _shown(value: Any, *, lines: bool = False) -> str:
    if lines:
        return "\n".join(value)
    if value is None or isinstance(value, str):
        return value or "never"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) and value else None)


def settings_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    form = SettingsForm(request.POST or None)
    if request.method == "POST" and _save(request, form):
        return redirect("admin:settings")
    return TemplateResponse(request, "admin/settings.html", {**context, "form": form, "folders": _folders()})


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
                {"label": _label(name), "value": _short(value), "overridden_by": sources.get(name, "")}
                for name, value in file.values.items()
            ]
            folders += [{"path": file.path, "values": values}] if values else []
    return folders


def _label(name: str) -> str:
    return setting_info(name).label or name.replace("_", " ").capitalize()


def _short(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else " ".join(_shown(value).split())


def _save(request: HttpRequest, form: SettingsForm) -> bool:
    changes = form.changes()
    if changes is None:
        return False
    if not changes:
        messages.info(request, "No changes to save.")
        return True
    try:
        change_settings(command=SettingsChange(settings=changes))
    except HubError as error:
        form.add_error(None, f"{error.message[:1].upper()}{error.message[1:]}.")
        return False
    messages.success(request, f"Changed: {', '.join(_label(name) for name in changes)}.")
    return True
