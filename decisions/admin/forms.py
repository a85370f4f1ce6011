"""The form of a decision: what a person types, as the command of a service. The rules are the schema's."""

from __future__ import annotations

from typing import Any

from django import forms
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from pydantic import BaseModel, ValidationError

from decisions.models import Decision, DecisionStatus, Impact
from decisions.schemas import DecisionRecord, DecisionSupersede
from memories.admin.attributes import faults_by_field
from memoryhub.core.errors import Conflict, HubError, Invalid, NotFound
from memoryhub.core.validation import explain_faults

MORE = "more_rows"
"""The name of the button that asks for more rows of alternatives, where no script adds them."""
_SPARE = 2
_MORE_SPARE = 5
_IDS = ("refines", "depends_on", "conflicts_with", "relates_to")
_LISTS = ("commits", "files", "prs", "notes", "validations")
_TEXTS = ("title", "context", "chosen", "rationale", "impact", "phase", "topic", "source")
_MAIN = ("title", "context", "chosen", "alternatives", "rationale", "impact", "status", "phase", "topic", "supersedes")
_OPEN_STATUSES = (DecisionStatus.ACCEPTED, DecisionStatus.PROPOSED)
_SAID = {
    "context": "The problem that it answers. Markdown or plain text.",
    "alternatives": "What was not chosen, each with why not.",
    "supersedes": "Numbers of those that it replaces.",
    "title": "What it is about, in a few words.",
    "chosen": "What was chosen. Markdown or plain text.",
    "rationale": "Why it was chosen over the others. Markdown or plain text.",
    "impact": "How much depends on it.",
    "status": "Proposed, as long as it is not settled.",
    "prs": "Their numbers or addresses.",
    "notes": "Anything else that shows it.",
    "source": "A path or an address.",
    "refines": "Those that it makes more precise.",
    "depends_on": "Those that it rests on.",
    "conflicts_with": "Those that it cannot stand beside.",
    "relates_to": "Others that one should know of.",
}
_LABELS = {"prs": "Pull requests", "decided_at": "Decided", "branch": "Make it a second head"}
_TOOL_NAMES = {
    "; supersede that, or pass branch=true for a second head": "; supersede that, or tick “Make it a second head”",
    "; search or list to find its id": "",
}


def error_text(error: HubError) -> str:
    """Return an error as a person reads it here, where tools have buttons instead of names."""
    text = error.message
    for name, instead in _TOOL_NAMES.items():
        text = text.replace(name, instead)
    return _sentence(text.split("; memory_", 1)[0])


class AlternativeRows(forms.Widget):
    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[dict[str, str]]:
        options, reasons = (data.getlist(f"{name}_{part}") for part in ("option", "why_not"))
        return [{"option": option, "why_not": why} for option, why in zip(options, reasons, strict=False)]

    def id_for_label(self, id_: str, index: str | None = None) -> str:
        return id_

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        filled = [each for each in value or [] if each["option"] or each["why_not"]]
        spare = _MORE_SPARE if self.attrs.get("spare") else _SPARE
        rows = [*filled, *[{"option": "", "why_not": ""}] * spare]
        context = {"name": name, "id": (attrs or {}).get("id", f"id_{name}"), "rows": rows, "more": MORE}
        return render_to_string("admin/decisions/alternatives.html", context)


class AlternativesField(forms.Field):
    widget = AlternativeRows

    def clean(self, value: list[dict[str, str]]) -> list[dict[str, str]]:
        typed = [{key: _text(each[key]) for key in ("option", "why_not")} for each in value or []]
        return [each for each in typed if any(each.values())]


class DecisionForm(forms.Form):
    """The parts of a decision that a person may say."""

    title = forms.CharField(required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    context = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4}))
    chosen = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4}))
    alternatives = AlternativesField(required=False)
    rationale = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4}))
    impact = forms.ChoiceField(required=False, choices=Impact.choices, initial=Impact.MEDIUM)
    status = forms.ChoiceField(required=False, choices=[(each.value, each.label) for each in _OPEN_STATUSES])
    phase = forms.CharField(required=False)
    topic = forms.CharField(required=False, widget=forms.TextInput(attrs={"list": "known-topics"}))

    def __init__(self, schema: type[BaseModel], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        self.schema = schema
        numbers = {name: forms.TextInput(attrs={"placeholder": "#412"}) for name in _IDS}
        areas = {name: forms.Textarea(attrs={"rows": 2}) for name in _LISTS}
        for name, widget in {**numbers, **areas}.items():
            self.fields[name] = forms.CharField(required=False, widget=widget)
        self.fields["source"] = forms.CharField(required=False)
        self.fields["decided_at"] = forms.DateTimeField(required=False, widget=_moment_input())
        for name, field in self.fields.items():
            field.label = _LABELS.get(name)
            field.help_text = _help(schema, name)

    @property
    def main(self) -> list[Any]:
        return [self[name] for name in _MAIN if name in self.fields]

    @property
    def further(self) -> list[Any]:
        return [field for field in self if field.name not in _MAIN and field.name != "branch"]

    @property
    def has_further(self) -> bool:
        return any(field.errors or field.value() for field in self.further)

    def command(self) -> Any:
        """Return the command, or None where the form says what is wrong."""
        if not self.is_valid():
            return None
        try:
            return self.schema.model_validate(self.values())
        except ValidationError as error:
            for name, fault in faults_by_field(error, self.fields):
                self.add_error(name or None, _sentence(explain_faults([fault])))
            return None

    def values(self) -> dict[str, Any]:
        """Return what was typed, by the names of the schema; what is empty is left out."""
        typed = self.cleaned_data
        values: dict[str, Any] = {name: _text(typed[name]) for name in _TEXTS}
        values |= {name: ids_in(typed[name]) for name in (*_IDS, "supersedes") if name in typed}
        values |= {name: [line for line in map(str.strip, typed[name].splitlines()) if line] for name in _LISTS}
        values |= {"alternatives": typed["alternatives"], "status": typed["status"], "decided_at": typed["decided_at"]}
        return {name: value for name, value in values.items() if value}

    def refuse(self, error: HubError) -> None:
        """Show what a service refused; errors that are no one's input go on."""
        if not isinstance(error, Conflict | Invalid | NotFound):
            raise error
        self.add_error(None, error_text(error))


class RecordForm(DecisionForm):
    """The form of a decision that stands by itself, or that supersedes some."""

    supersedes = forms.CharField(required=False, widget=forms.TextInput(attrs={"placeholder": "#412"}))
    branch = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(DecisionRecord, *args, **kwargs)

    def values(self) -> dict[str, Any]:
        return {**super().values(), "branch": self.cleaned_data["branch"]}


class SupersedeForm(DecisionForm):
    branch = forms.BooleanField(required=False)

    def __init__(self, earlier: Decision, *args: Any, **kwargs: Any) -> None:
        before = {name: getattr(earlier, name) for name in ("title", "context", "impact", "phase", "topic")}
        super().__init__(DecisionSupersede, *args, **{"initial": before, **kwargs})
        self.earlier = earlier

    def values(self) -> dict[str, Any]:
        """Add what is replaced, and whether it may be a second head."""
        return {**super().values(), "id": self.earlier.id, "branch": self.cleaned_data["branch"]}


def with_more_rows(make: Any, data: Any) -> DecisionForm:
    """Return a form that nothing was sent with yet, filled with ``data``, and with more empty rows."""
    empty: DecisionForm = make()
    typed = {name: field.widget.value_from_datadict(data, {}, name) for name, field in empty.fields.items()}
    form: DecisionForm = make(initial=typed)
    form.fields["alternatives"].widget.attrs["spare"] = "more"
    return form


def ids_in(text: str) -> list[str]:
    """Return the numbers in a row such as ``#12, #15 18``, as they were typed, for the schema to judge."""
    return [word.removeprefix("#") for word in text.replace(",", " ").split()]


def _moment_input() -> forms.DateTimeInput:
    widget = forms.DateTimeInput(format="%Y-%m-%dT%H:%M")
    widget.input_type = "datetime-local"
    return widget


def _help(schema: type[BaseModel], name: str) -> str:
    described = schema.model_fields.get(name)
    text = _SAID.get(name) or (described.description if described else "") or ""
    unit = {**dict.fromkeys(_LISTS, " One a line."), "decided_at": " In your time zone."}.get(name, "")
    return f"{_sentence(text)}{unit}" if text else unit.strip()


def _text(value: Any) -> str:
    return str(value or "").replace("\r\n", "\n").strip()


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."
