"""Forms that build the commands of writes and reviews."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from memories.admin.base import sentence
from memories.admin.filters import type_label
from memories.models import Memory, MemoryKind
from memories.review.schemas import ReviewEdit
from memories.schemas import MemoryUpdate, MemoryWrite
from memoryhub.core.admin.schema_form import SchemaForm, initial_values, nested, schema_fields
from memoryhub.core.errors import ConflictError, HubError, PreconditionFailed
from memoryhub.core.kinds import KINDS, attribute_of
from memoryhub.core.text import as_sentence


def attribute_fields(kind: str) -> dict[str, Any]:
    """Return form fields of a kind's attributes by name; a nested field is named ``outer__inner``."""
    return dict(schema_fields(KINDS[kind].attributes, _help))


def _help(field: FieldInfo) -> str:
    text = (attribute_of(field).help or field.description or "").rstrip(".")
    return as_sentence(text) if text else ""


class MemoryForm(SchemaForm[Any]):
    error_fields = {"resource_links": "links", "attributes": ""}

    title = forms.CharField(required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    content = forms.CharField(
        required=False, strip=False, widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "true"})
    )
    tags = forms.CharField(
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "list": "known-tags", "data-suggest": ""}),
        help_text="Separate tags with commas.",
    )
    source = forms.CharField(required=False, help_text="A path or URL that the memory is based on.")
    links = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="One URL a line, followed by a link type such as governs or related.",
    )

    def __init__(self, kind: MemoryKind, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind
        self.attributes = attribute_fields(kind)
        declared = KINDS[kind]
        self.fields["content"].label = declared.text_label
        self.fields["content"].help_text = declared.text_help
        self.fields.update(self.attributes)
        attrs = {"autocomplete": "off", "list": "known-types"}
        type_field: forms.Field = forms.CharField(required=False, widget=forms.TextInput(attrs=attrs))
        if declared.types:
            type_field = forms.ChoiceField(choices=[(name, type_label(name)) for name in declared.types])
        type_field.initial = declared.default_type
        type_field.label = declared.type_label
        self.fields["type"] = type_field
        facts = [shape.name for shape in declared.shapes.values() if shape.in_panel]
        self.order_fields(
            ["title", "type", *facts, "content", *self.attributes, "tags", "topic_key", "source", "links"]
        )

    def values(self) -> dict[str, Any]:
        """Return the values by their schema names; invalid attributes become form errors."""
        typed = self.cleaned_data
        attributes: dict[str, Any] = {}
        try:
            fields = nested({name: typed.get(name) for name in self.attributes})
            # Without the empty ones
            checked = KINDS[self.kind].attributes.model_validate(fields)
            attributes = checked.model_dump(mode="json", exclude_unset=True)
        except ValidationError as error:
            self.add_faults(error)
        return {
            "title": typed["title"],
            "content": typed["content"].replace("\r\n", "\n"),
            "type": typed["type"],
            "attributes": attributes,
            "tags": list(filter(None, [tag.strip() for tag in typed["tags"].split(",")])),
            "source": typed["source"],
            "resource_links": _links(typed["links"]),
        }


class NewMemoryForm(MemoryForm):
    schema = MemoryWrite
    topic_key = forms.CharField(
        required=False,
        label="Topic",
        help_text="Optional. A topic has one memory: writing to the same topic again revises it.",
    )

    def values(self) -> dict[str, Any]:
        return {**super().values(), "kind": self.kind, "topic_key": self.cleaned_data["topic_key"] or None}


class ChangedMemoryForm(MemoryForm):
    schema = MemoryUpdate
    base_version = forms.IntegerField(widget=forms.HiddenInput)
    change_reason = forms.CharField(required=False, label="Reason", help_text="Optional. Stored with the version.")

    def __init__(self, memory: Memory, data: Any = None) -> None:
        initial = {
            "title": memory.title,
            "content": memory.content,
            "type": memory.type,
            "tags": ", ".join(memory.tags),
            "source": memory.source,
            "links": "\n".join(f"{link['uri']} {link['type']}" for link in memory.resource_links),
            "base_version": memory.version,
            **initial_values(attribute_fields(memory.kind), memory.attributes),
        }
        super().__init__(MemoryKind(memory.kind), data, initial=initial)
        self.memory = memory

    def values(self) -> dict[str, Any]:
        return {
            "id": self.memory.id,
            "base_version": self.cleaned_data["base_version"],
            "must_be_current": True,
            "change_reason": self.cleaned_data["change_reason"],
            **_changes(super().values(), self.memory),
        }

    def rebase(self, version: int) -> None:
        """Let the next submission replace this version; the page shows its text."""
        if isinstance(self.data, QueryDict):
            self.data = self.data.copy()
            self.data["base_version"] = str(version)


def _changes(typed: dict[str, Any], memory: Memory) -> dict[str, Any]:
    changes = {name: value for name, value in typed.items() if value != getattr(memory, name)}
    if "attributes" in changes:
        schema = KINDS[memory.kind].attributes
        before = schema.model_validate(memory.attributes)
        after = schema.model_validate(typed["attributes"])
        names = [name for name in schema.model_fields if getattr(before, name) != getattr(after, name)]
        changes["attributes"] = {name: typed["attributes"].get(name) for name in names} or None
    return changes


def _links(text: str) -> list[dict[str, str]]:
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [{"uri": uri, "type": "".join(words).strip() or "related"} for uri, *words in lines]


class EditForm(ChangedMemoryForm):
    schema = ReviewEdit

    def show(self, error: HubError) -> None:
        """Add an error to the form. After a conflict, the next submission replaces the version shown."""
        if isinstance(error, PreconditionFailed):
            self.rebase(self.memory.version)
        self.add_error("title" if isinstance(error, ConflictError) else None, sentence(error))
