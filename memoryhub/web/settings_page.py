"""The page of a project's settings, by topic: value, source, and fields made from each setting's type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from memoryhub.config import current_settings
from memoryhub.config.current_settings import read_folder
from memoryhub.config.identity import bound_folders
from memoryhub.config.project_settings import (
    GROUP_HELP,
    ProjectSettings,
    Topic,
    check_settings,
    setting_info,
    setting_label,
)
from memoryhub.core.admin.schema_form import Schema, posted, resolve
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.stores.store import Scope, current_store
from memoryhub.core.text import as_sentence, counted
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings

# Topics that also have a page of their own, and whether their settings are changed there only
_PAGES = {Topic.RETENTION: ("governance_retentionrun_changelist", False), Topic.SECRETS: ("secrets", True)}
# Names of the fields of a setting's form
_ONE = "value"
_NAME, _VALUE = "name", "value"
_YES_OR_NO = [("true", "Yes"), ("false", "No")]
_INPUT_MODES = {"integer": "numeric", "number": "decimal"}
_MAX_ROWS = 200
_WHERE = re.compile(r"^setting '\w+(?:\[(?P<row>\d+)\])?(?:\.(?P<part>[^']+))?' ")


class SettingForm:
    """The form of a setting: one field. It has the setting's value unless its fields were posted."""

    template = "memoryhub/setting_field.html"

    def __init__(self, name: str, schema: Schema, value: Any, posted: QueryDict | None) -> None:
        self.name = name
        self.schema = schema
        self.info = setting_info(name)
        self.form = self.make(value, posted)

    def make(self, value: Any, posted: QueryDict | None) -> Any:
        field = _field(self.schema, self.info.choices, is_required=True)
        field.label = setting_label(self.name)
        field.help_text = help_of(self.name)
        return _form_class({_ONE: field})(posted, prefix=self.name, initial={_ONE: _initial(field, value)})

    @property
    def is_group(self) -> bool:
        widget = self.form.fields[_ONE].widget
        return isinstance(widget, forms.RadioSelect | forms.CheckboxSelectMultiple)

    @property
    def unit(self) -> str:
        return f"{self.info.unit}, or never" if self.schema.get("is_nullable") else self.info.unit

    def typed(self) -> Any:
        return _parse_value(self.form.cleaned_data.get(_ONE), self.schema)

    def value(self) -> Any:
        """Return what was typed as the value of the setting; None resets it.

        Raises:
            Invalid: the value is not accepted.
        """
        if not self.form.is_valid():
            raise Invalid("Select one of the choices")
        value = self.typed()
        try:
            check_settings({self.name: value})
        except Invalid as error:
            raise Invalid(_for_readers(error.message)) from error
        return value


class PartsForm(SettingForm):
    """A field for each property; an empty one takes its default."""

    template = "memoryhub/setting_parts.html"
    is_group = True

    def make(self, value: Any, posted: QueryDict | None) -> forms.Form:
        fields = _columns(self.schema)
        initial = _row_initial(fields, value)
        return _form_class(fields)(posted, prefix=self.name, initial=initial, label_suffix="")

    def typed(self) -> Any:
        return _typed_row(self.form, self.schema)


class RowsForm(SettingForm):
    """Rows of fields, of which the empty ones do not count."""

    template = "memoryhub/setting_rows.html"
    is_group = True

    def make(self, value: Any, posted: QueryDict | None) -> Any:
        fields = _columns(self.row)
        rows = forms.formset_factory(_form_class(fields), extra=1, max_num=_MAX_ROWS)
        initial = [_row_initial(fields, row) for row in self.rows(value)]
        return rows(posted, prefix=self.name, initial=initial, form_kwargs={"label_suffix": ""})

    @property
    def row(self) -> Schema:
        row: Schema = self.schema["items"]
        return row

    def rows(self, value: Any) -> list[dict[str, Any]]:
        return list(value)

    def typed(self) -> Any:
        rows = [_typed_row(form, self.row) for form in self.form]
        return list(filter(None, rows)) or None


class NamedRowsForm(RowsForm):
    @property
    def row(self) -> Schema:
        value = {**self.schema["additionalProperties"], "title": self.info.unit.capitalize() or "Value"}
        return {"properties": {_NAME: {"type": "string", "title": "Kind"}, _VALUE: value}}

    def rows(self, value: Any) -> list[dict[str, Any]]:
        return [{_NAME: name, _VALUE: number} for name, number in value.items()]

    def typed(self) -> Any:
        rows = super().typed() or []
        values = {row.get(_NAME, ""): row.get(_VALUE) for row in rows}
        if len(values) < len(rows):
            raise Invalid("A kind is in two rows; delete one of them")
        return values or None


def setting_form(name: str, value: Any, posted: QueryDict | None) -> SettingForm:
    schema = _settings_schema()["properties"][name]
    kind: type[SettingForm] = SettingForm
    if "properties" in schema:
        kind = PartsForm
    elif "additionalProperties" in schema:
        kind = NamedRowsForm
    elif "properties" in schema.get("items", {}):
        kind = RowsForm
    return kind(name, schema, value, posted)


@cache
def _settings_schema() -> Schema:
    schema: Schema = resolve(ProjectSettings.model_json_schema())
    return schema


def help_of(name: str) -> str:
    return setting_info(name).help or as_sentence(str(ProjectSettings.model_fields[name].description))


def _form_class(fields: dict[str, Any]) -> type[forms.Form]:
    return type("Fields", (forms.Form,), {**fields, "use_required_attribute": False})


def _columns(schema: Schema) -> dict[str, Any]:
    fields = {}
    for part, part_schema in schema["properties"].items():
        field = _field(part_schema, {}, is_required=False)
        field.label = part_schema.get("title", part).capitalize()
        fields[part] = field
    return fields


def _field(schema: Schema, names: Mapping[str, str], *, is_required: bool) -> forms.Field:
    items = schema.get("items", {})
    values = schema.get("enum") or items.get("enum") or ()
    choices = [(value, names.get(value, value)) for value in values]
    if "enum" in items:
        return forms.MultipleChoiceField(required=False, choices=choices, widget=forms.CheckboxSelectMultiple)
    if "enum" in schema:
        if not is_required:
            choices.insert(0, ("", "–"))
        return forms.ChoiceField(required=False, choices=choices, widget=forms.RadioSelect if names else forms.Select)
    if schema.get("type") == "boolean":
        return forms.ChoiceField(required=False, choices=_YES_OR_NO)
    if schema.get("type") == "array":
        return forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}))
    attrs = {"spellcheck": "false"}
    if schema.get("type") in _INPUT_MODES:
        attrs = {"class": "number-input"}
        if not schema.get("is_nullable"):
            attrs["inputmode"] = _INPUT_MODES[schema["type"]]
    return forms.CharField(required=False, widget=forms.TextInput(attrs={**attrs, "autocomplete": "off"}))


def _initial(field: forms.Field, value: Any) -> Any:
    if isinstance(field.widget, forms.Textarea):
        return "\n".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else value


def _row_initial(fields: Mapping[str, forms.Field], row: Mapping[str, Any]) -> dict[str, Any]:
    return {part: _initial(fields[part], value) for part, value in row.items()}


def _parse_value(typed: Any, schema: Schema) -> Any:
    """Return a value of JSON: numbers where the schema has them, the words of a list line by line."""
    if not typed or isinstance(typed, list):
        return typed or None
    if schema.get("type") == "array":
        return list(filter(None, map(str.strip, typed.splitlines()))) or None
    if schema.get("type") in ("integer", "number", "boolean"):
        try:
            return json.loads(typed)
        except (json.JSONDecodeError, RecursionError):
            return typed  # a word such as ``never``, or what the check refuses
    return typed


def _typed_row(form: Any, schema: Schema) -> dict[str, Any] | None:
    row = {}
    for part, part_schema in schema["properties"].items():
        value = _parse_value(form.cleaned_data.get(part), part_schema)
        if value is not None:
            row[part] = value
    return row or None


def _for_readers(message: str) -> str:
    """Return the check's message without the setting's name, which the field has as its label."""
    where = _WHERE.match(message)
    if not where:
        return message
    parts = []
    if where["row"]:
        parts.append(f"Row {int(where['row']) + 1}")
    if where["part"]:
        parts.append(where["part"].replace("_", " "))
    place = ", ".join(parts)
    text = message[where.end() :]
    if place:
        text = f"{place}: {text}"
    return f"{text[:1].upper()}{text[1:]}"


@dataclass
class ShownSetting:
    name: str
    value: Any
    # What the project itself sets, or None
    project_value: Any
    # The source that overrides the project, or ""
    elsewhere: str
    # Values in the files of the project's folders, as (file, value)
    in_folders: list[tuple[str, str]]
    posted: QueryDict | None = None
    error: str = ""

    @cached_property
    def form(self) -> SettingForm:
        posted = self.posted
        if posted is not None and not any(key.startswith(f"{self.name}-") for key in posted):
            posted = None
        return setting_form(self.name, self.value, posted)

    @property
    def group(self) -> Topic:
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
    def text(self) -> str:
        return setting_text(self.name, self.value)

    @property
    def project_text(self) -> str:
        return setting_text(self.name, _value_of(self.name, self.project_value))

    @property
    def default_text(self) -> str:
        return setting_text(self.name, _value_of(self.name, None))

    def change(self, before: Any) -> dict[str, Any]:
        """Return the change that was typed, compared with what the project set when the page was shown."""
        if self.is_read_only or not self.form.form.is_bound:
            return {}
        try:
            typed = self.form.value()
        except Invalid as error:
            self.error = f"{error.message}."
            return {}
        is_reset = typed is None and before is not None
        if _value_of(self.name, typed) == _value_of(self.name, before) and not is_reset:
            return {}
        return {self.name: typed}


def _value_of(name: str, value: Any) -> Any:
    return check_settings({name: value}).model_dump(mode="json")[name]


class SettingsForm:
    def __init__(self, posted: QueryDict | None = None) -> None:
        values = current_settings.project_settings().model_dump(mode="json")
        project_values = current_settings.settings_of_the_project()
        elsewhere = current_settings.settings_decided_elsewhere()
        self.folders = _folders()
        self.before = _before(posted, project_values)
        self.settings = []
        for name, value in values.items():
            overriding = elsewhere.get(name, "")
            in_folders = _in_folders(self.folders, name)
            setting = ShownSetting(name, value, project_values.get(name), overriding, in_folders, posted)
            self.settings.append(setting)

    def groups(self) -> list[dict[str, Any]]:
        """Return each topic with its settings, its text, and its own page if it has one."""
        groups = []
        for group in Topic:
            settings = [setting for setting in self.settings if setting.group is group]
            page, _ = _PAGES.get(group, ("", False))
            changed = sum(setting.project_value is not None for setting in settings)
            groups.append(
                {"name": group, "help": GROUP_HELP[group], "page": page, "settings": settings, "changed": changed}
            )
        return groups

    @property
    def errors(self) -> list[ShownSetting]:
        return [setting for setting in self.settings if setting.error]

    @property
    def before_json(self) -> str:
        return json.dumps(self.before)

    def changes(self) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for setting in self.settings:
            changes |= setting.change(self.before.get(setting.name))
        return changes


def _before(posted: QueryDict | None, project_values: dict[str, Any]) -> dict[str, Any]:
    """Return what the project set when the page was shown, so that others' changes since then stay."""
    try:
        before = json.loads(str(posted.get("before")) if posted else "")
        check_settings(before)
    except (json.JSONDecodeError, RecursionError, TypeError, Invalid):
        return project_values
    return dict(before)


def setting_text(name: str, value: Any) -> str:
    info = setting_info(name)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, list):
        words = [info.choices.get(item, item) for item in value if isinstance(item, str)]
        if value and not words:
            return counted(len(value), "rule")
        return ", ".join(words) or "None"
    if isinstance(value, dict):
        return ", ".join(f"{part} {number:g}" for part, number in value.items()) or "None"
    if value is None or value == "never":
        return "Never"
    if isinstance(value, float):
        value = f"{value:g}"
    return f"{info.choices.get(str(value), value)} {info.unit}".strip()


def settings_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    form = SettingsForm(posted(request))
    reset = request.POST.get("reset", "")
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
    for key in list(posted):
        if key.startswith(f"{name}-"):
            del posted[key]
    form = SettingsForm(posted)
    form.before.pop(name, None)
    value = next(setting.text for setting in form.settings if setting.name == name)
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
    messages.success(request, f"Changed: {', '.join(map(setting_label, changes))}.")
    return True


def _folders() -> list[dict[str, Any]]:
    """Return the settings in the files of the project's folders, with the source that overrides each."""
    store = current_store()
    sources = current_settings.settings_decided_by()
    folders: list[dict[str, Any]] = []
    if store.scope is not Scope.PROJECT:
        return folders
    for folder in bound_folders(store.name):
        try:
            file = read_folder(folder, store.name)
        except Invalid as error:
            folders.append({"path": folder, "problem": f"{error.message}."})
        else:
            values = []
            for name, value in file.values.items():
                text = setting_text(name, _value_of(name, value))
                overridden_by = sources.get(name, "")
                row = {"name": name, "label": setting_label(name), "value": text, "overridden_by": overridden_by}
                values.append(row)
            if values:
                folders.append({"path": file.path, "values": values})
    return folders


def _in_folders(folders: list[dict[str, Any]], name: str) -> list[tuple[str, str]]:
    values = [(folder["path"], value) for folder in folders for value in folder.get("values", ())]
    return [(path, value["value"]) for path, value in values if value["name"] == name and not value["overridden_by"]]
