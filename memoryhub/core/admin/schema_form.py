"""Forms made from schemas: fields by the type of a value, commands from what was typed, errors at their fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from django import forms
from django.forms.utils import flatatt
from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from memoryhub.core.text import as_sentence
from memoryhub.core.validation import explain_faults

Schema = dict[str, Any]
C = TypeVar("C", bound=BaseModel)

# Between the names of an object and of its part: ``examples__good``
WITHIN = "__"
# Texts that may be longer get a text area.
_LINE = 500


def posted(request: HttpRequest) -> QueryDict | None:
    """Return the data of a submitted form, or None for a form to be filled in."""
    return request.POST if request.method == "POST" else None


class SchemaForm(forms.Form, Generic[C]):
    """A form of a command. Its fields only parse; the schema validates, and its errors go to the fields they name."""

    schema: type[C]
    # Names of the schema whose errors go to another field, or to none
    error_fields: Mapping[str, str] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})

    def values(self) -> dict[str, Any]:
        """Return what was typed, by the names of the schema."""
        return dict(self.cleaned_data)

    def command(self) -> C | None:
        """Return the command, or None if the form has errors."""
        if not self.is_valid():
            return None
        try:
            command = self.schema.model_validate(self.values())
        except ValidationError as error:
            self.add_faults(error)
            return None
        return None if self.errors else command

    def add_faults(self, error: ValidationError) -> None:
        """Add each error of a schema to the field that it is about."""
        names = {*self.fields, *self.error_fields}
        for fault in error.errors(include_url=False):
            path = [str(part) for part in fault["loc"]]
            name = next((name for name in (WITHIN.join(path[:2]), *path[:1]) if name in names), "")
            self.add_error(self.error_fields.get(name, name) or None, as_sentence(explain_faults([fault])))


class SchemaText(forms.CharField):
    """A text; an empty one is None. ``as_initial`` is the reverse of ``clean``."""

    def __init__(self, schema: Schema, **kwargs: Any) -> None:
        widget: forms.Widget = forms.TextInput(attrs={"autocomplete": "off"})
        if schema.get("maxLength", 0) > _LINE:
            widget = forms.Textarea(attrs={"rows": 2})
        super().__init__(widget=widget, required=False, **kwargs)

    def clean(self, value: Any) -> Any:
        text = str(value or "").strip().replace("\r\n", "\n")
        return self.read(text) if text else None

    def read(self, text: str) -> Any:
        return text

    def as_initial(self, value: Any) -> Any:
        return value


class SchemaNumber(SchemaText):
    def __init__(self, schema: Schema, **kwargs: Any) -> None:
        super().__init__(schema, **kwargs)
        attrs = {
            "min": schema.get("minimum"),
            "max": schema.get("maximum"),
            "placeholder": schema.get("default"),
            "step": {"integer": 1}.get(schema["type"], 0.05),
        }
        self.widget = forms.NumberInput(attrs={name: value for name, value in attrs.items() if value is not None})


class SchemaMoment(SchemaText):
    def __init__(self, schema: Schema, **kwargs: Any) -> None:
        super().__init__(schema, **kwargs)
        self.widget = forms.TextInput(attrs={"step": 1})
        self.widget.input_type = "datetime-local"

    def read(self, text: str) -> Any:
        # The browser's field has no time zone: it means the viewer's.
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return text  # the schema reports the error
        return text if moment.tzinfo else timezone.make_aware(moment).astimezone(UTC).isoformat()

    def as_initial(self, value: Any) -> Any:
        return timezone.localtime(datetime.fromisoformat(value)).strftime("%Y-%m-%dT%H:%M:%S") if value else ""


class SchemaJson(SchemaText):
    def __init__(self, schema: Schema, **kwargs: Any) -> None:
        super().__init__(schema, **kwargs)
        self.widget = forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "class": "code"})

    def read(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise forms.ValidationError(f"Enter valid JSON: {error}.") from error
        except RecursionError as error:
            raise forms.ValidationError("This JSON is nested too deeply.") from error

    def as_initial(self, value: Any) -> Any:
        return json.dumps(value, indent=2, ensure_ascii=False) if value else ""


class Areas(forms.Widget):
    """A text area for each entry of a list, and an empty one; a script adds more."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        return list(data.getlist(name)) if hasattr(data, "getlist") else list(data.get(name, []))

    def id_for_label(self, id_: str, index: str | None = None) -> str:
        return id_

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        attrs = attrs or {}
        label = name.replace(WITHIN, " ").replace("_", " ")
        aria = flatatt({attr: text for attr, text in attrs.items() if attr.startswith("aria-")})
        html_id = first = attrs.get("id", f"id_{name}")
        areas = []
        for number, entry in enumerate([*filter(str.strip, value or []), ""], start=1):
            rows = min(max(entry.count("\n") + 1, 2), 12)
            areas.append((name, html_id, f"{label} {number}", rows, aria, entry))
            html_id = f"{first}_{number + 1}"
        shape = '<textarea name="{}" id="{}" aria-label="{}" rows="{}" class="code"{}>\n{}</textarea>'
        return format_html('<div class="areas" data-areas>{}</div>', format_html_join("", shape, areas))


class SchemaTexts(forms.Field):
    """A list of texts."""

    def __init__(self, schema: Schema, **kwargs: Any) -> None:
        super().__init__(widget=Areas(), required=False, **kwargs)

    def clean(self, value: list[str]) -> Any:
        return [self.read(entry.replace("\r\n", "\n").strip("\n")) for entry in value or [] if entry.strip()] or None

    def read(self, entry: str) -> Any:
        return entry

    def as_initial(self, value: Any) -> Any:
        return value or []


class SchemaValues(SchemaTexts):
    """A list of JSON values; an entry that is not JSON is a text."""

    def read(self, entry: str) -> Any:
        try:
            return json.loads(entry)
        except ValueError:
            return entry

    def as_initial(self, value: Any) -> Any:
        return [self._text(entry) for entry in value or []]

    def _text(self, value: Any) -> str:
        # ``read`` has to bring it back unchanged.
        if isinstance(value, str) and self.read(value) == value and value.strip() == value:
            return value
        return json.dumps(value, indent=2, ensure_ascii=False)


class SchemaChoice(forms.ChoiceField):
    """A choice; the default is None."""

    def __init__(self, schema: Schema, **kwargs: Any) -> None:
        self._default = schema.get("default")
        choices = [(value, value.replace("_", " ").capitalize()) for value in schema["enum"]]
        if not self._default:
            choices.insert(0, ("", ""))
        super().__init__(choices=choices, required=False, initial=self._default, **kwargs)

    def clean(self, value: Any) -> Any:
        choice = super().clean(value) or None
        return None if choice == self._default else choice

    def as_initial(self, value: Any) -> Any:
        return value or self._default


class SchemaBoolean(forms.BooleanField):
    """Yes or no; the default is None."""

    def __init__(self, schema: Schema, **kwargs: Any) -> None:
        self._default = bool(schema.get("default"))
        super().__init__(required=False, initial=self._default, **kwargs)

    def clean(self, value: Any) -> Any:
        checked = super().clean(value)
        return None if checked == self._default else checked

    def as_initial(self, value: Any) -> Any:
        return self._default if value is None else value


_FIELDS: dict[str, Callable[..., Any]] = {
    "integer": SchemaNumber,
    "number": SchemaNumber,
    "object": SchemaJson,
    "string": SchemaText,
    "boolean": SchemaBoolean,
}


def schema_fields(
    model: type[BaseModel], help_of: Callable[[FieldInfo], str], outer: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield a form field for each field of a schema, with its name; that of a part is ``object__part``."""
    schema = resolve(model.model_json_schema())
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from schema_fields(info.annotation, help_of, outer=f"{name}{WITHIN}")
        else:
            label = f"{name} {outer.removesuffix(WITHIN)}".strip().replace("_", " ").capitalize()
            kind = _field_class(schema["properties"][name])
            yield f"{outer}{name}", kind(schema["properties"][name], label=label, help_text=help_of(info))


def _field_class(schema: Schema) -> Callable[..., Any]:
    if "enum" in schema:
        return SchemaChoice
    if schema.get("format") == "date-time":
        return SchemaMoment
    if schema["type"] == "array":
        return SchemaTexts if schema.get("items", {}).get("type") == "string" else SchemaValues
    return _FIELDS[schema["type"]]


def resolve(schema: Any, definitions: Mapping[str, Schema] | None = None) -> Any:
    """Return a JSON schema without references; a value that may be null is that value, and ``is_nullable``."""
    if isinstance(schema, list):
        return [resolve(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    definitions = definitions or schema.get("$defs", {})
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    if "anyOf" in schema:
        schema = {"is_nullable": True, **schema["anyOf"][0], **schema}
    return {key: resolve(part, definitions) for key, part in schema.items() if key not in ("$ref", "anyOf", "$defs")}


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of fields as a schema has them, without empty ones: ``examples__good`` within ``examples``."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        outer, _, inner = name.partition(WITHIN)
        if value is None:
            continue
        if inner:
            result.setdefault(outer, {})[inner] = value
        else:
            result[outer] = value
    return result


def initial_values(fields: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what fields show of a schema's values; the reverse of ``nested``."""
    initial = {}
    for name, field in fields.items():
        outer, _, inner = name.partition(WITHIN)
        value = values.get(outer)
        if inner and value:
            value = value.get(inner)
        initial[name] = field.as_initial(value)
    return initial
