"""Forms that build the commands of decisions' services."""

from __future__ import annotations

from typing import Any

from django import forms
from django.template.loader import render_to_string
from django.urls import reverse_lazy
from django.utils.safestring import SafeString
from django.utils.text import format_lazy
from pydantic import BaseModel

from decisions.models import IN_FORCE, Decision, Impact
from decisions.schemas import DecisionRecord, DecisionSupersede
from memoryhub.core.admin.schema_form import SchemaForm
from memoryhub.core.errors import ConflictError, HubError, Invalid, NotFound
from memoryhub.core.text import as_sentence

MORE = "more_rows"  # the button that adds rows of alternatives without JavaScript
_SPARE = 2
_MORE_SPARE = 5
_IDS = ("refines", "depends_on", "conflicts_with", "relates_to")
_LISTS = ("commits", "files", "prs", "notes", "validations", "checks")
_TEXTS = ("title", "context", "chosen", "rationale", "impact", "phase", "topic", "source")
_MAIN = ("title", "context", "chosen", "alternatives", "rationale", "impact", "status", "phase", "topic", "supersedes")
_HELP_TEXTS = {
    "title": "A few words.",
    "context": "The problem. Markdown or plain text.",
    "chosen": "The chosen option. Markdown or plain text.",
    "alternatives": "Options that were not chosen, and why.",
    "rationale": "Why this option was chosen. Markdown or plain text.",
    "impact": "How much depends on this decision.",
    "status": "Proposed until the decision is final.",
    "supersedes": "Numbers of decisions that this one replaces.",
    "prs": "Numbers or URLs.",
    "notes": "Any other evidence.",
    "source": "A path or URL.",
    "refines": "Numbers of decisions that this one makes more precise.",
    "depends_on": "Numbers of decisions that this one requires.",
    "conflicts_with": "Numbers of decisions that contradict this one.",
    "relates_to": "Numbers of other relevant decisions.",
}
_LABELS = {
    "chosen": "Decision",
    "prs": "Pull requests",
    "decided_at": "Decided at",
    "branch": "Keep both as current (second head)",
}
_TOOL_NAMES = {
    "; supersede that, or pass branch=true for a second head": f"; supersede that, or tick “{_LABELS['branch']}”",
    "; search or list to find its id": "",
}


def error_text(error: HubError) -> str:
    """Return an error as a sentence for a page, without the names of MCP tools."""
    text = error.message
    for hint, replacement in _TOOL_NAMES.items():
        text = text.replace(hint, replacement)
    return as_sentence(text.split("; memory_", 1)[0].rstrip("."))


class AlternativeRows(forms.Widget):
    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[dict[str, str]]:
        options, reasons = (data.getlist(f"{name}_{part}") for part in ("option", "why_not"))
        return [{"option": option, "why_not": why} for option, why in zip(options, reasons, strict=False)]

    def id_for_label(self, id_: str, index: str | None = None) -> str:
        return id_

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        filled = [row for row in value or [] if row["option"] or row["why_not"]]
        spare = _MORE_SPARE if self.attrs.get("spare") else _SPARE
        rows = [*filled, *[{"option": "", "why_not": ""}] * spare]
        context = {"name": name, "id": (attrs or {}).get("id", f"id_{name}"), "rows": rows, "more": MORE}
        return render_to_string("admin/decisions/alternatives.html", context)


class AlternativesField(forms.Field):
    widget = AlternativeRows

    def clean(self, value: list[dict[str, str]]) -> list[dict[str, str]]:
        rows = [{key: _text(row[key]) for key in ("option", "why_not")} for row in value or []]
        return [row for row in rows if any(row.values())]


def _numbers_input() -> forms.TextInput:
    # ``pick.js`` offers decisions by their titles
    address = format_lazy("{}?of=decision", reverse_lazy("admin:pick"))
    return forms.TextInput(attrs={"placeholder": "#412", "autocomplete": "off", "data-pick": address})


class DecisionForm(SchemaForm[Any]):
    title = forms.CharField(required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    context = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4}))
    chosen = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4}))
    alternatives = AlternativesField(required=False)
    rationale = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4}))
    impact = forms.ChoiceField(required=False, choices=Impact.choices, initial=Impact.MEDIUM)
    status = forms.ChoiceField(required=False, choices=[(status.value, status.label) for status in IN_FORCE])
    phase = forms.CharField(required=False)
    topic = forms.CharField(required=False, widget=forms.TextInput(attrs={"list": "known-topics"}))
    branch = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        numbers = {name: _numbers_input() for name in _IDS}
        areas = {name: forms.Textarea(attrs={"rows": 2}) for name in _LISTS}
        for name, widget in {**numbers, **areas}.items():
            self.fields[name] = forms.CharField(required=False, widget=widget)
        self.fields["source"] = forms.CharField(required=False)
        self.fields["decided_at"] = forms.DateTimeField(required=False, widget=_moment_input())
        for name, field in self.fields.items():
            field.label = _LABELS.get(name)
            field.help_text = _help(self.schema, name)

    @property
    def main(self) -> list[Any]:
        return [self[name] for name in _MAIN if name in self.fields]

    @property
    def further(self) -> list[Any]:
        return [field for field in self if field.name not in _MAIN and field.name != "branch"]

    @property
    def has_further(self) -> bool:
        return any(field.errors or field.value() for field in self.further)

    def values(self) -> dict[str, Any]:
        typed = self.cleaned_data
        values: dict[str, Any] = {name: _text(typed[name]) for name in _TEXTS}
        values |= {name: ids_in(typed[name]) for name in (*_IDS, "supersedes") if name in typed}
        values |= {name: [line for line in map(str.strip, typed[name].splitlines()) if line] for name in _LISTS}
        values |= {"alternatives": typed["alternatives"], "status": typed["status"], "decided_at": typed["decided_at"]}
        return {name: value for name, value in values.items() if value} | {"branch": typed["branch"]}

    def refuse(self, error: HubError) -> None:
        if not isinstance(error, ConflictError | Invalid | NotFound):
            raise error
        self.add_error(None, error_text(error))


class RecordForm(DecisionForm):
    schema = DecisionRecord
    supersedes = forms.CharField(required=False, widget=_numbers_input())


class SupersedeForm(DecisionForm):
    schema = DecisionSupersede

    def __init__(self, earlier: Decision, *args: Any, **kwargs: Any) -> None:
        before = {name: getattr(earlier, name) for name in ("title", "context", "impact", "phase", "topic")}
        super().__init__(*args, **{"initial": before, **kwargs})
        self.earlier = earlier

    def values(self) -> dict[str, Any]:
        return {**super().values(), "id": self.earlier.id}


def with_more_rows(make: Any, data: Any) -> DecisionForm:
    empty: DecisionForm = make()
    typed = {name: field.widget.value_from_datadict(data, {}, name) for name, field in empty.fields.items()}
    form: DecisionForm = make(initial=typed)
    form.fields["alternatives"].widget.attrs["spare"] = "more"
    return form


def ids_in(text: str) -> list[str]:
    """Return the words of a list such as ``#12, #15 18`` without ``#``; the schema validates them."""
    return [word.removeprefix("#") for word in text.replace(",", " ").split()]


def _moment_input() -> forms.DateTimeInput:
    widget = forms.DateTimeInput(format="%Y-%m-%dT%H:%M")
    widget.input_type = "datetime-local"
    return widget


def _help(schema: type[BaseModel], name: str) -> str:
    described = schema.model_fields.get(name)
    text = _HELP_TEXTS.get(name) or (described.description if described else "") or ""
    unit = {**dict.fromkeys(_LISTS, " One per line."), "decided_at": " In your time zone."}.get(name, "")
    return f"{as_sentence(text.rstrip('.'))}{unit}" if text else unit.strip()


def _text(value: Any) -> str:
    return str(value or "").replace("\r\n", "\n").strip()
