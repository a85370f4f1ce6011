"""Form fields for a kind's attributes, derived from its schema. They only parse; the schema validates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.forms.utils import flatatt
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from memoryhub.core.kinds import KINDS, attribute_of

_WITHIN = "__"
# Texts that may be longer get a text area.
_LINE = 500
# Empty text areas after the filled ones of a list.
_SPARE = 1


class TextAttribute(forms.CharField):
    def __init__(self, schema: Mapping[str, Any], **kwargs: Any) -> None:
        is_long = schema.get("maxLength", 0) > _LINE
        area = forms.Textarea(attrs={"rows": 2}) if is_long else forms.TextInput(attrs={"autocomplete": "off"})
        super().__init__(widget=area, required=False, **kwargs)

    def clean(self, value: Any) -> Any:
        return self.read(value.strip().replace("\r\n", "\n")) if value and value.strip() else None

    def read(self, text: str) -> Any:
        return text

    def shown(self, value: Any) -> Any:
        return value


class NumberAttribute(TextAttribute):
    def __init__(self, schema: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(schema, **kwargs)
        attrs = {
            "min": schema.get("minimum"),
            "max": schema.get("maximum"),
            "placeholder": schema.get("default"),
            "step": 1 if schema["type"] == "integer" else 0.05,
        }
        self.widget = forms.NumberInput(attrs={name: value for name, value in attrs.items() if value is not None})


class MomentAttribute(TextAttribute):
    def __init__(self, schema: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(schema, **kwargs)
        self.widget = forms.TextInput(attrs={"step": 1})
        self.widget.input_type = "datetime-local"

    def shown(self, value: Any) -> Any:
        moment = datetime.fromisoformat(value) if value else None
        return timezone.localtime(moment).strftime("%Y-%m-%dT%H:%M:%S") if moment else ""

    def read(self, text: str) -> Any:
        # The browser's field has no time zone: it means the viewer's.
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return text  # the schema reports the error
        return text if moment.tzinfo else timezone.make_aware(moment).astimezone(UTC).isoformat()


class JsonAttribute(TextAttribute):
    def __init__(self, schema: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(schema, **kwargs)
        self.widget = forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "class": "code"})

    def read(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise forms.ValidationError(f"Enter valid JSON: {error}.") from error
        except RecursionError as error:
            raise forms.ValidationError("This JSON is nested too deeply.") from error

    def shown(self, value: Any) -> Any:
        return json.dumps(value, indent=2, ensure_ascii=False) if value else ""


class Areas(forms.Widget):
    """A text area for each entry of a list, and an empty one; a script adds more."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        return list(data.getlist(name)) if hasattr(data, "getlist") else list(data.get(name, []))

    def id_for_label(self, id_: str, index: str | None = None) -> str:
        return id_

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        entries = [*[entry for entry in value or [] if entry.strip()], *[""] * _SPARE]
        first = (attrs or {}).get("id", f"id_{name}")
        ids = [first, *(f"{first}_{number}" for number in range(2, len(entries) + 1))]
        label = name.replace(_WITHIN, " ").replace("_", " ")
        aria = flatatt({name: text for name, text in (attrs or {}).items() if name.startswith("aria-")})
        areas = (
            (name, ids[index], f"{label} {index + 1}", _rows(entry), aria, entry) for index, entry in enumerate(entries)
        )
        shape = '<textarea name="{}" id="{}" aria-label="{}" rows="{}" class="code"{}>\n{}</textarea>'
        return format_html('<div class="areas" data-areas>{}</div>', format_html_join("", shape, areas))


class ListAttribute(forms.Field):
    """A list of texts, or of JSON values: an entry that parses as JSON is one."""

    def __init__(self, schema: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(widget=Areas(), required=False, **kwargs)
        self._is_text = schema.get("items", {}).get("type") == "string"

    def clean(self, value: list[str]) -> Any:
        entries = [entry.replace("\r\n", "\n").strip("\n") for entry in value or [] if entry.strip()]
        return [entry if self._is_text else _value(entry) for entry in entries] or None

    def shown(self, value: Any) -> Any:
        return [entry if self._is_text else _text(entry) for entry in value or []]


class ChoiceAttribute(forms.ChoiceField):
    """A choice; the default is not stored."""

    def __init__(self, schema: Mapping[str, Any], **kwargs: Any) -> None:
        self._default = schema["default"]
        none = [] if self._default else [("", "")]
        choices = [*none, *((value, value.replace("_", " ").capitalize()) for value in schema["enum"])]
        super().__init__(choices=choices, required=False, initial=self._default, **kwargs)

    def clean(self, value: Any) -> Any:
        chosen = super().clean(value) or None
        return None if chosen == self._default else chosen

    def shown(self, value: Any) -> Any:
        return value or self._default


class BooleanAttribute(forms.BooleanField):
    def __init__(self, schema: Mapping[str, Any], **kwargs: Any) -> None:
        self._default = bool(schema["default"])
        super().__init__(required=False, initial=self._default, **kwargs)

    def clean(self, value: Any) -> Any:
        checked = super().clean(value)
        return None if checked == self._default else checked

    def shown(self, value: Any) -> Any:
        return self._default if value is None else value


def attribute_fields(kind: str) -> dict[str, Any]:
    """Return form fields by name; a nested field is named ``outer__inner``."""
    return dict(_fields(KINDS[kind].attributes))


def typed_attributes(kind: str, cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes to store, without empty ones.

    Raises:
        ValidationError: a value is invalid.
    """
    attributes: dict[str, Any] = {}
    for name in attribute_fields(kind):
        if cleaned.get(name) is not None:
            outer, _, inner = name.partition(_WITHIN)
            attributes[outer] = {**attributes.get(outer, {}), inner: cleaned[name]} if inner else cleaned[name]
    return KINDS[kind].attributes.model_validate(attributes).model_dump(mode="json", exclude_unset=True)


def shown_attributes(kind: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    initial: dict[str, Any] = {}
    for name, field in attribute_fields(kind).items():
        outer, _, inner = name.partition(_WITHIN)
        value = attributes.get(outer)
        initial[name] = field.shown(value.get(inner) if inner and value else value)
    return initial


def faults_by_field(error: ValidationError, names: Any) -> Iterator[tuple[str, Any]]:
    """Yield each error of a schema with the name of its form field, or ""."""
    for fault in error.errors(include_url=False):
        path = [str(part) for part in fault["loc"]]
        whole = (_WITHIN.join(path[:length]) for length in (2, 1))
        yield next((name for name in whole if name in names), ""), fault


def outer_name(name: str) -> str:
    """Return the attribute of a form field: ``examples`` for ``examples__good``."""
    return name.partition(_WITHIN)[0]


def _fields(model: type[BaseModel], outer: str = "") -> Iterator[tuple[str, Any]]:
    schema = model.model_json_schema()
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{name}{_WITHIN}")
        else:
            label = f"{name} {outer.removesuffix(_WITHIN)}".strip().replace("_", " ").capitalize()
            yield f"{outer}{name}", _field(schema, schema["properties"][name], label=label, help_text=_help(field))


def _field(schema: Mapping[str, Any], described: Mapping[str, Any], **kwargs: Any) -> Any:
    first = next(iter(described.get("anyOf", ())), described)
    schema_type = schema.get("$defs", {}).get(first.get("$ref", "").rpartition("/")[2], first)
    whole = {**schema_type, "default": described.get("default")}
    if "enum" in schema_type:
        return ChoiceAttribute(whole, **kwargs)
    if schema_type.get("format") == "date-time":
        return MomentAttribute(whole, **kwargs)
    fields = {"array": ListAttribute, "object": JsonAttribute, "string": TextAttribute, "boolean": BooleanAttribute}
    return fields.get(schema_type["type"], NumberAttribute)(whole, **kwargs)


def _help(field: FieldInfo) -> str:
    text = attribute_of(field).help or field.description or ""
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + ("." if text else "")


def _rows(text: str) -> int:
    return min(max(text.count("\n") + 1, 2), 12)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    # ``_value`` reads it back unchanged.
    is_plain = isinstance(value, str) and _value(value) == value and value.strip() == value
    return str(value) if is_plain else json.dumps(value, indent=2, ensure_ascii=False)
