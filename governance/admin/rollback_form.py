"""The form of the roll-back page: what a person chooses, as the plan that every door takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.http import QueryDict
from pydantic import ValidationError

from governance.models.taint import RollbackAction
from governance.taint.schemas import Include, RollbackPlan
from governance.taint.sources import Source, Sources
from memoryhub.core.admin.cells import counted
from memoryhub.core.validation import explain_faults

_ACTIONS = (
    (RollbackAction.QUARANTINE, "Quarantine: set aside what there is; nothing tells of it until it is let out"),
    (RollbackAction.UNDO, "Undo: take changes back, delete what was written, and set the rest aside"),
)
_INCLUDE = (
    (Include.CHANGED_SINCE, "What others have changed since"),
    (Include.BUILT_ON, "What others built on it"),
    (Include.INFLUENCED, "What may have been influenced"),
)
_POINT = {"placeholder": "2026-11-20 14:00, or #412", "autocomplete": "off"}
_OF_FORM = {"form": "choose"}
"""They stand on the page where what they mean can be seen, outside of the form."""

SELECTING = ("session_id", "actor", "source", "since", "until", "include_people")
"""The fields that choose; the others say what is done."""


class RollbackForm(forms.Form):
    """Whose doings, when, and what is done about them; the rules are the schema's."""

    session_id = forms.ChoiceField(required=False, label="Session")
    actor = forms.ChoiceField(required=False, label="Client")
    source = forms.ChoiceField(required=False, label="Door")
    since = forms.CharField(required=False, max_length=40, label="From", widget=forms.TextInput(attrs=_POINT))
    until = forms.CharField(
        required=False,
        max_length=40,
        label="Until",
        help_text="A time in UTC, or a position.",
        widget=forms.TextInput(attrs=_POINT),
    )
    include_people = forms.BooleanField(required=False, label="Also what people did in the admin")
    action = forms.ChoiceField(
        required=False,
        choices=_ACTIONS,
        initial=RollbackAction.QUARANTINE,
        widget=forms.RadioSelect(attrs=_OF_FORM),
        label="Do what",
    )
    include = forms.MultipleChoiceField(
        required=False, choices=_INCLUDE, widget=forms.CheckboxSelectMultiple(attrs=_OF_FORM), label="Reach"
    )

    def __init__(self, data: QueryDict | None, known: Sources) -> None:
        super().__init__(_with_action(data), label_suffix="")
        self._fill("session_id", known.sessions, "any session")
        self._fill("actor", known.actors, "any client")
        self._fill("source", known.doors, "any door")
        self._ids: QueryDict = data if data is not None else QueryDict()

    def _fill(self, name: str, found: Iterable[Source], any_of_them: str) -> None:
        choices = [(each.name, f"{each.name} · {counted(each.events, 'event')}, last {_when(each)}") for each in found]
        self.fields[name].choices = [("", any_of_them), *choices]  # type: ignore[attr-defined]

    def selecting(self) -> list[Any]:
        """Return the fields that choose."""
        return [self[name] for name in SELECTING]

    def plan(self) -> RollbackPlan | None:
        """Return what is asked for, or None where the form says what is wrong."""
        if not self.is_valid():
            return None
        try:
            return RollbackPlan.model_validate(self._fields())
        except ValidationError as error:
            self.add_error(None, f"{explain_faults(error.errors())}.")
            return None

    def _fields(self) -> dict[str, Any]:
        typed: dict[str, Any] = {name: value for name, value in self.cleaned_data.items() if value}
        ids = {name: self._ids.getlist(name) for name in ("also", "leave") if self._ids.getlist(name)}
        return {**typed, **ids}


def _with_action(data: QueryDict | None) -> QueryDict | None:
    """Return what was sent with what is meant where no action is named."""
    if data is None or data.get("action"):
        return data
    meant = data.copy()
    meant["action"] = RollbackAction.QUARANTINE
    return meant


def _when(source: Source) -> str:
    return source.last[:16].replace("T", " ")
