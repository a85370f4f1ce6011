"""The form of the rules: one row a rule, in order, and the two simple settings that come last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.forms import formset_factory
from pydantic import ValidationError

from governance.admin.retention_words import event_words
from governance.retention.policy import CONDITIONS
from memories.models import MemoryKind, MemoryScope
from memoryhub.core.validation import explain
from sessions_app.retaining import MAX_RULES, RetentionRule, captured_types
from sessions_app.settings import ProjectSettings

SIMPLE = ("retention_days", "purge_deleted_after_days")
if TYPE_CHECKING:
    _BaseFormSet = forms.BaseFormSet["RuleForm"]
else:
    _BaseFormSet = forms.BaseFormSet

_ANY = [("", "any")]
_WHATS = [
    ("", "no rule"),
    ("captured", "what was captured"),
    ("pack", "context packs"),
    ("deleted", "deleted memories"),
    ("memory", "live memories"),
    ("session", "sessions"),
    ("decision", "decisions"),
    ("iteration", "iterations"),
    ("commit", "commits"),
]
_DAYS = {"size": 6, "inputmode": "numeric", "autocomplete": "off"}


class SimpleForm(forms.Form):
    """The two settings that every store has."""

    retention_days = forms.CharField(label="What was captured goes after (days)", widget=forms.TextInput(attrs=_DAYS))
    purge_deleted_after_days = forms.CharField(
        label="Deleted memories go after (days)", widget=forms.TextInput(attrs=_DAYS)
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})


class RuleForm(forms.Form):
    """One rule; without a sort it is none."""

    what = forms.ChoiceField(required=False, label="Of", choices=_WHATS)
    event_type = forms.ChoiceField(required=False, label="Event", choices=[])
    kind = forms.ChoiceField(required=False, label="Kind", choices=[*_ANY, *MemoryKind.choices])
    type = forms.CharField(required=False, label="Type", max_length=64, widget=forms.TextInput(attrs={"size": 10}))
    scope = forms.ChoiceField(required=False, label="Scope", choices=[*_ANY, *MemoryScope.choices])
    after_days = forms.CharField(
        required=False, label="Days", max_length=10, widget=forms.TextInput(attrs={**_DAYS, "placeholder": "never"})
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        self.fields["event_type"].choices = [*_ANY, *((name, event_words(name)) for name in captured_types())]  # type: ignore[attr-defined]

    def rule(self) -> dict[str, Any] | None:
        """Return the rule as the setting has it; None for none, or where the form says what is wrong."""
        typed = self.cleaned_data
        if not typed.get("what"):
            return None
        given = {name: typed[name].strip() for name in CONDITIONS if typed.get(name, "").strip()}
        rule = {"what": typed["what"], **given, "after_days": _days(typed.get("after_days", ""))}
        try:
            return RetentionRule.model_validate(rule).model_dump(mode="json", exclude_none=True) | {
                "after_days": rule["after_days"]
            }
        except ValidationError as error:
            said = explain(error)
            self.add_error(None, f"{said[:1].upper()}{said[1:]}.")
            return None


class _Ordered(_BaseFormSet):
    """Rows with a place, which says of each when it is asked."""

    def add_fields(self, form: RuleForm, index: int | None) -> None:
        """Add the place, by its plain name."""
        super().add_fields(form, index)
        form.fields["ORDER"].label = "Place"


_Rules = formset_factory(RuleForm, formset=_Ordered, extra=1, can_order=True, max_num=MAX_RULES)


class PolicyForm:
    """Both parts as one form."""

    def __init__(self, data: Any = None, *, initial: ProjectSettings | None = None) -> None:
        self.problem = ""
        if initial is None:
            self.simple, self.rules = SimpleForm(data), _Rules(data, prefix="rules")
            return
        self.simple = SimpleForm(initial={name: getattr(initial, name) or "never" for name in SIMPLE})
        rules = [rule.model_dump(mode="json") for rule in initial.retention]
        shown = [{**rule, "after_days": rule["after_days"] or "never"} for rule in rules]
        self.rules = _Rules(initial=shown, prefix="rules")

    @property
    def has_errors(self) -> bool:
        """Whether something is wrong with what was typed."""
        return bool(self.problem or self.simple.errors or any(form.errors for form in self.rules))

    def settings(self) -> dict[str, Any] | None:
        """Return the settings as typed, or None where the form says what is wrong."""
        if not (self.simple.is_valid() and self.rules.is_valid()):
            return None
        rules = [form.rule() for form in self._in_order()]
        if self.has_errors:
            return None
        self._wanted = {
            **{name: _days(self.simple.cleaned_data[name]) for name in SIMPLE},
            "retention": [rule for rule in rules if rule],
        }
        return self._wanted

    def refuse(self, problem: str) -> None:
        """Say what is wrong with the whole."""
        self.problem = problem

    def differs_from(self, kept: ProjectSettings) -> bool:
        """Whether the settings in force are others than those typed."""
        wanted = ProjectSettings.model_validate(self._wanted)
        return any(getattr(kept, name) != getattr(wanted, name) for name in (*SIMPLE, "retention"))

    def _in_order(self) -> list[RuleForm]:
        """Return the rows by the places typed; those that stood there before stay first among equals."""
        forms_: list[Any] = list(self.rules)
        return sorted(forms_, key=lambda form: form.cleaned_data.get("ORDER") or len(forms_))


def _days(typed: str) -> int | str:
    text = typed.strip().lower()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else text or "never"
