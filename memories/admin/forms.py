"""The form of a memory: what a person types, as the command of a service."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict
from pydantic import ValidationError

from memories.models import Memory, MemoryType
from memories.schemas import MemoryUpdate, MemoryWrite
from memoryhub.core.validation import explain

_FIELD_OF = {"resource_links": "links"}


class MemoryForm(forms.Form):
    """The parts of a memory that a person may set; the rules are the schema's."""

    title = forms.CharField(required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    content = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 18, "spellcheck": "true"}),
        help_text="Markdown or plain text.",
    )
    type = forms.ChoiceField(choices=MemoryType.choices, initial=MemoryType.NOTE)
    tags = forms.CharField(required=False, help_text="Words to filter by, separated by commas.")
    source = forms.CharField(required=False, help_text="Where it comes from: a path or an address.")
    links = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="One address a line, with a word behind it that says what it is.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})

    def values(self) -> dict[str, Any]:
        """Return what was typed, under the names of the schemas."""
        typed = self.cleaned_data
        return {
            "title": typed["title"],
            "content": typed["content"].replace("\r\n", "\n"),
            "type": typed["type"],
            "tags": [tag for tag in (part.strip() for part in typed["tags"].split(",")) if tag],
            "source": typed["source"],
            "resource_links": _links(typed["links"]),
        }

    def refuse(self, error: ValidationError) -> None:
        """Show what the schema says beside the field that it says it of."""
        name = str(error.errors(include_url=False)[0]["loc"][0])
        name = _FIELD_OF.get(name, name)
        self.add_error(name if name in self.fields else None, _sentence(explain(error)))


class NewMemoryForm(MemoryForm):
    """The form of a memory that is not there yet."""

    topic_key = forms.CharField(
        required=False,
        label="Topic",
        help_text="Optional. One memory a topic: what is written to it again revises the one that is there.",
    )
    field_order = ["title", "content", "type", "tags", "topic_key", "source", "links"]

    def command(self) -> MemoryWrite | None:
        """Return the command, or None where the form says what is wrong."""
        if not self.is_valid():
            return None
        try:
            return MemoryWrite(**self.values(), topic_key=self.cleaned_data["topic_key"] or None)
        except ValidationError as error:
            self.refuse(error)
            return None


class ChangedMemoryForm(MemoryForm):
    """The form of a memory that was read at a version."""

    base_version = forms.IntegerField(widget=forms.HiddenInput)
    change_reason = forms.CharField(
        required=False, label="Reason", help_text="Why it changes; it stays with the version."
    )

    def command(self, memory: Memory) -> MemoryUpdate | None:
        """Return the command with what differs from ``memory``, or None where the form says what is wrong."""
        if not self.is_valid():
            return None
        now = _present_values(memory)
        changes = {name: value for name, value in self.values().items() if value != now[name]}
        try:
            return MemoryUpdate(
                id=memory.id,
                base_version=self.cleaned_data["base_version"],
                must_be_current=True,
                change_reason=self.cleaned_data["change_reason"],
                **changes,
            )
        except ValidationError as error:
            self.refuse(error)
            return None

    def rebase(self, version: int) -> None:
        """Take ``version`` as the one that was read: its text is shown beside what was typed."""
        self.data = {**self.data.dict(), "base_version": version} if isinstance(self.data, QueryDict) else self.data


def initial_of(memory: Memory) -> dict[str, Any]:
    """Return what the form shows at first."""
    return {
        "title": memory.title,
        "content": memory.content,
        "type": memory.type,
        "tags": ", ".join(memory.tags),
        "source": memory.source,
        "links": "\n".join(f"{link['uri']} {link['type']}" for link in memory.resource_links),
        "base_version": memory.version,
    }


def _present_values(memory: Memory) -> dict[str, Any]:
    names = ("title", "content", "type", "tags", "source", "resource_links")
    return {name: getattr(memory, name) for name in names}


def _links(text: str) -> list[dict[str, str]]:
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [{"uri": parts[0], "type": parts[1].strip() if len(parts) > 1 else "related"} for parts in lines]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
