"""The form of a setting, made from its type: a field, a field for each part, or rows of fields."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from django import forms
from django.http import QueryDict

from memoryhub.config.project_settings import ProjectSettings, check_settings, setting_info, setting_label
from memoryhub.core.errors import Invalid

Schema = dict[str, Any]
_ONE = "value"
_NAME, _VALUE = "name", "value"
_YES_OR_NO = [("true", "Yes"), ("false", "No")]
_MAX_ROWS = 200
_WHERE = re.compile(r"^setting '\w+(?:\[(?P<row>\d+)\])?(?:\.(?P<part>[^']+))?' ")


class SettingForm:
    """The fields of one setting, with its value unless its fields were posted."""

    template = "memoryhub/setting_field.html"
    # More than one control, which a legend names
    is_group = False

    def __init__(self, name: str, schema: Schema, value: Any, posted: QueryDict | None) -> None:
        self.name, self.schema, self.info = name, schema, setting_info(name)
        self.form = self.make(value, posted)

    def make(self, value: Any, posted: QueryDict | None) -> Any:
        raise NotImplementedError

    def typed(self) -> Any:
        raise NotImplementedError

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


class OneField(SettingForm):
    def make(self, value: Any, posted: QueryDict | None) -> forms.Form:
        field = _field(self.schema, self.info.choices, required=True)
        field.label = setting_label(self.name)
        field.help_text = help_of(self.name)
        self.is_group = isinstance(field.widget, forms.RadioSelect | forms.CheckboxSelectMultiple)
        initial = "\n".join(value) if isinstance(field.widget, forms.Textarea) else _shown(value)
        return _form({_ONE: field})(posted, prefix=self.name, initial={_ONE: initial})

    @property
    def unit(self) -> str:
        return f"{self.info.unit}, or never" if self.schema.get("is_nullable") else self.info.unit

    def typed(self) -> Any:
        return _read(self.form.cleaned_data.get(_ONE), self.schema)


class Parts(SettingForm):
    """A field for each property; an empty one takes its default."""

    template, is_group = "memoryhub/setting_parts.html", True

    def make(self, value: Any, posted: QueryDict | None) -> forms.Form:
        initial = {part: _shown(each) for part, each in value.items()}
        return _form(_columns(self.schema))(posted, prefix=self.name, initial=initial, label_suffix="")

    def typed(self) -> Any:
        return _row(self.form, self.schema)


class Rows(SettingForm):
    """Rows of fields, of which the empty ones do not count."""

    template, is_group = "memoryhub/setting_rows.html", True

    def make(self, value: Any, posted: QueryDict | None) -> Any:
        rows = forms.formset_factory(_form(_columns(self.row)), extra=1, max_num=_MAX_ROWS)
        initial = [{part: _shown(each) for part, each in row.items()} for row in self.rows(value)]
        return rows(posted, prefix=self.name, initial=initial, form_kwargs={"label_suffix": ""})

    @property
    def row(self) -> Schema:
        row: Schema = self.schema["items"]
        return row

    def rows(self, value: Any) -> list[dict[str, Any]]:
        return list(value)

    def typed(self) -> Any:
        return [row for row in (_row(form, self.row) for form in self.form) if row] or None


class NamedRows(Rows):
    """Rows of a name and a value."""

    @property
    def row(self) -> Schema:
        value = {**self.schema["additionalProperties"], "title": self.info.unit.capitalize() or "Value"}
        properties = {_NAME: {"type": "string", "title": "Kind"}, _VALUE: value}
        return {"properties": properties, "required": [_NAME, _VALUE]}

    def rows(self, value: Any) -> list[dict[str, Any]]:
        return [{_NAME: name, _VALUE: each} for name, each in value.items()]

    def typed(self) -> Any:
        rows = super().typed() or []
        names = [row.get(_NAME, "") for row in rows]
        if len(set(names)) < len(names):
            raise Invalid("A kind is in two rows; delete one of them")
        return {row.get(_NAME, ""): row.get(_VALUE) for row in rows} or None


def setting_form(name: str, value: Any, posted: QueryDict | None) -> SettingForm:
    """Return the form of a setting, with the fields that its type asks for."""
    whole = _whole_schema()
    schema = _resolved(whole["properties"][name], whole.get("$defs", {}))
    kind: type[SettingForm] = OneField
    if "properties" in schema:
        kind = Parts
    elif "additionalProperties" in schema:
        kind = NamedRows
    elif "properties" in schema.get("items", {}):
        kind = Rows
    return kind(name, schema, value, posted)


@cache
def _whole_schema() -> Schema:
    return ProjectSettings.model_json_schema()


def help_of(name: str) -> str:
    """Return what a setting does, as a sentence."""
    text = str(ProjectSettings.model_fields[name].description)
    return setting_info(name).help or f"{text[:1].upper()}{text[1:]}."


def _resolved(schema: Any, definitions: Mapping[str, Schema]) -> Any:
    """Return a JSON schema without references, and a value that may be null as the value."""
    if isinstance(schema, list):
        return [_resolved(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    if "anyOf" in schema:
        schema = {"is_nullable": True, **schema["anyOf"][0], **schema}
    return {key: _resolved(part, definitions) for key, part in schema.items() if key not in ("$ref", "anyOf")}


def _form(fields: dict[str, forms.Field]) -> type[forms.Form]:
    return type("Fields", (forms.Form,), {**fields, "use_required_attribute": False})


def _columns(schema: Schema) -> dict[str, forms.Field]:
    columns = {}
    for part, about in schema["properties"].items():
        field = columns[part] = _field(about, {}, required=False)
        field.label = about.get("title", part).capitalize()
    return columns


def _field(schema: Schema, choices: Mapping[str, str], *, required: bool) -> forms.Field:
    options: dict[str, Any] = {"required": False}
    if "enum" in schema:
        named = [(value, choices.get(value, value)) for value in schema["enum"]]
        widget = forms.RadioSelect() if choices else forms.Select()
        return forms.ChoiceField(choices=named if required else [("", "–"), *named], widget=widget, **options)
    if schema.get("type") == "boolean":
        return forms.ChoiceField(choices=_YES_OR_NO, **options)
    if schema.get("type") == "array":
        return _list_field(schema["items"], choices)
    size = {"integer": "numeric", "number": "decimal"}.get(schema.get("type", ""))
    attributes = {"class": "number-input"} if size else {"spellcheck": "false"}
    if size and not schema.get("is_nullable"):
        attributes["inputmode"] = size
    return forms.CharField(widget=forms.TextInput(attrs={**attributes, "autocomplete": "off"}), **options)


def _list_field(items: Schema, choices: Mapping[str, str]) -> forms.Field:
    if "enum" in items:
        named = [(value, choices.get(value, value)) for value in items["enum"]]
        return forms.MultipleChoiceField(required=False, choices=named, widget=forms.CheckboxSelectMultiple())
    return forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}))


def _row(form: Any, schema: Schema) -> dict[str, Any] | None:
    typed = {part: _read(form.cleaned_data.get(part), about) for part, about in schema["properties"].items()}
    return {part: value for part, value in typed.items() if value is not None} or None


def _read(typed: Any, schema: Schema) -> Any:
    """Return a value of JSON: numbers where the schema has them, the words of a list line by line."""
    if not typed:
        return None
    if schema.get("type") == "array":
        return typed if isinstance(typed, list) else [line.strip() for line in typed.splitlines() if line.strip()]
    if schema.get("type") in ("integer", "number", "boolean"):
        try:
            return json.loads(typed)
        except (json.JSONDecodeError, RecursionError):
            return typed  # a word such as ``never``, or what the check refuses
    return typed


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return value
    return f"{value:g}" if isinstance(value, float) else value


def _for_readers(message: str) -> str:
    """Return the check's message without the setting's name, which the field has as its label."""
    where = _WHERE.match(message)
    if not where:
        return message
    places = [f"Row {int(where['row']) + 1}" if where["row"] else "", (where["part"] or "").replace("_", " ")]
    place = ", ".join(filter(None, places))
    text = message[where.end() :]
    text = f"{place}: {text}" if place else text
    return f"{text[:1].upper()}{text[1:]}"
