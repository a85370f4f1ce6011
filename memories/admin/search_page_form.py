"""The form of the search page: what a person types, as the question that an agent would ask."""

from __future__ import annotations

from typing import Any

from django import forms
from pydantic import ValidationError

from memories.admin.listing import MAX_QUERY
from memories.models import MemoryKind, MemoryScope
from memories.schemas import MemorySearch, SearchSourceName
from memoryhub.core.validation import explain_faults

_SOURCES = {
    SearchSourceName.MEMORY: "Memories",
    SearchSourceName.DECISION: "Decisions",
    SearchSourceName.COMMIT: "Commits",
    SearchSourceName.SESSION: "Sessions",
    SearchSourceName.MESSAGE: "Messages",
}
_DAY = forms.DateInput(attrs={"type": "date"})


def _choices(all_label: str, labels: dict[Any, str]) -> list[tuple[str, str]]:
    return [("", all_label), *((value.value, label) for value, label in labels.items())]


class SearchForm(forms.Form):
    """The question and its filters; the rules are the schema's."""

    query = forms.CharField(
        required=False,
        label="Question",
        widget=forms.TextInput(
            attrs={"type": "search", "maxlength": MAX_QUERY, "placeholder": "Ask in your own words, as an agent would"}
        ),
    )
    source = forms.ChoiceField(required=False, label="In", choices=_choices("Everything", _SOURCES))
    kind = forms.ChoiceField(
        required=False, choices=_choices("Any kind", {kind: str(kind.label) for kind in MemoryKind})
    )
    type = forms.CharField(required=False, max_length=64)
    scope = forms.ChoiceField(
        required=False, choices=_choices("All that hold here", {each: str(each.label) for each in MemoryScope})
    )
    tags = forms.CharField(required=False, help_text="Separated by commas.")
    session_id = forms.CharField(required=False, label="Session", max_length=200)
    since = forms.DateField(required=False, widget=_DAY)
    until = forms.DateField(required=False, widget=_DAY)
    limit = forms.IntegerField(required=False, label="Hits", min_value=1, max_value=100)
    max_tokens = forms.IntegerField(required=False, label="Token budget", min_value=50, max_value=100_000)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        self.fields["limit"].widget.attrs["placeholder"] = str(MemorySearch.model_fields["limit"].default)
        self.fields["max_tokens"].widget.attrs["placeholder"] = "none"

    @property
    def filters(self) -> list[Any]:
        """The fields below the question."""
        return [self[name] for name in self.fields if name != "query"]

    @property
    def filtered(self) -> bool:
        """Whether any of them was used."""
        return any(self.data.get(name) for name in self.fields if name != "query")

    def command(self) -> MemorySearch | None:
        """Return the command, or None where nothing was asked or the form says what is wrong."""
        if not self.is_valid() or not self.cleaned_data["query"].strip():
            return None
        typed = self.cleaned_data
        tags = [tag.strip() for tag in typed.pop("tags").split(",") if tag.strip()]
        source = typed.pop("source")
        try:
            return MemorySearch(
                **{name: value for name, value in typed.items() if value}, tags=tags, sources=[source] if source else []
            )
        except ValidationError as error:
            self.add_error(None, f"{explain_faults(error.errors())}.")
            return None
