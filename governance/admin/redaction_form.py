"""The form of the redaction page: what a person types, as the selection that every door takes."""

from __future__ import annotations

from typing import Any

from django import forms
from pydantic import ValidationError

from governance.redaction.schemas import RedactionSelect
from memoryhub.core.validation import explain_faults

_WAYS = (
    ("text", "This very text"),
    ("pattern", "A pattern (RE2)"),
    ("rules", "Whatever the rules for secrets find today"),
    ("whole", "Everything of what is selected below"),
)

_FIELDS = {"text": "wanted", "pattern": "wanted", "label": "label", "ids": "ids", "search": "search"}
"""Which field of the form a fault of the schema is about; of the others the form as a whole says."""


class RedactionForm(forms.Form):
    """What to look for, and where; the rules are the schema's."""

    way = forms.ChoiceField(label="Take out", choices=_WAYS, initial="text")
    wanted = forms.CharField(
        required=False,
        label="Text or pattern",
        strip=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "autocomplete": "off"}),
    )
    ignore_case = forms.BooleanField(required=False, label="Upper and lower case alike")
    label = forms.CharField(
        required=False,
        max_length=40,
        label="Name of what was there",
        help_text="It stands in its place: [REDACTED:name]; where this is empty, [REDACTED:removed].",
    )
    ids = forms.CharField(
        required=False, label="Only in these things", help_text="Numbers such as 412, 633; empty for everything."
    )
    search = forms.CharField(
        required=False, max_length=2_000, label="Only in what this search finds", help_text="Empty for everything."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})

    def selection(self) -> dict[str, Any] | None:
        """Return the fields of the selection, or None where the form says what is wrong."""
        if not self.is_valid():
            return None
        fields = self._fields()
        try:
            RedactionSelect.model_validate(fields)
        except ValidationError as error:
            faults = error.errors()
            field = next((str(part) for fault in faults for part in fault["loc"][:1]), "")
            self.add_error(_FIELDS.get(field), f"{explain_faults(faults)}.")
            return None
        return fields

    def _fields(self) -> dict[str, Any]:
        typed = self.cleaned_data
        way = typed["way"]
        fields: dict[str, Any] = {way: True if way in ("rules", "whole") else typed["wanted"].replace("\r\n", "\n")}
        fields |= {name: typed[name] for name in ("ignore_case", "label", "search") if typed[name]}
        numbers = typed["ids"].replace("#", " ").replace(",", " ").split()
        return {**fields, "ids": numbers} if numbers else fields
