"""The form of the retention rules: a row for each rule, in order, and the two simple settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.forms import formset_factory
from pydantic import ValidationError

from governance.present import thing_name
from governance.retention.policy import CONDITIONS, Policy, day_start
from governance.retention.schemas import Share
from memories.models import MemoryKind, MemoryScope
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.config.retention_rules import MAX_RULES, RetentionRule, What, captured_types
from memoryhub.core import clock
from memoryhub.core.events.event_types import Retention, event_type
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.text import counted
from memoryhub.core.validation import explain

if TYPE_CHECKING:
    _BaseFormSet = forms.BaseFormSet["RuleForm"]
else:
    _BaseFormSet = forms.BaseFormSet


_STATES = {What.DELETED: "deleted", What.MEMORY: "live"}
_SUBJECTS = {
    What.CAPTURED: "captured events",
    What.PACK: "context packs",
    What.DELETED: "deleted memories",
    What.MEMORY: "live memories",
    What.SESSION: "sessions",
    What.DECISION: "decisions",
    What.ITERATION: "iterations",
    What.COMMIT: "commits",
}


def share_words(share: Share) -> str:
    many = share.things != 1
    nouns = _nouns(share.sub)
    if nouns:
        return nouns[many]
    state = _STATES.get(What(share.what))
    if state and share.sub in KINDS:
        return f"{state} {KINDS[share.sub].counted[many]}"
    return thing_name(share)


def event_words(type_name: str) -> str:
    """Return the plural noun of an event type, such as ``prompts``, or the type itself."""
    nouns = _nouns(type_name)
    return nouns[1] if nouns else type_name


def _nouns(name: str) -> tuple[str, str] | None:
    known = event_type(name)
    return known.nouns if known and known.retention is Retention.CAPTURED else None


def rule_words(rule: RetentionRule) -> str:
    """Return a rule as a sentence: ``Prompts are deleted after 30 days``."""
    subject = _subject(rule)
    verb = "purged" if rule.what is What.DELETED else "deleted"
    outcome = "kept" if rule.after_days is None else f"{verb} after {counted(rule.after_days, 'day')}"
    return f"{subject[:1].upper()}{subject[1:]} are {outcome}"


def _subject(rule: RetentionRule) -> str:
    if rule.event_type:
        return event_words(rule.event_type)
    kind = KINDS[rule.kind].counted[1] if rule.kind else ""
    subject = f"{_STATES[rule.what]} {kind}" if kind else _SUBJECTS[rule.what]
    of_type = f" of type {rule.type}" if rule.type else ""
    return f"{subject}{of_type}{f' in scope {rule.scope}' if rule.scope else ''}"


def rules_in_words() -> dict[str, str]:
    """Map the rules as plans name them, such as ``rule 1: deleted after 500 days``, to sentences, in order."""
    policy = Policy.current(day_start(clock.now()))
    return {f"{policy.name(index)}: {rule.sentence()}": rule_words(rule) for index, rule in enumerate(policy.rules)}


SIMPLE = ("retention_days", "purge_deleted_after_days")

_ANY = [("", "any")]
_WHATS = [
    ("", "no rule"),
    ("captured", "captured events"),
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
    retention_days = forms.CharField(label="Delete captured events after (days)", widget=forms.TextInput(attrs=_DAYS))
    purge_deleted_after_days = forms.CharField(
        label="Purge deleted memories after (days)", widget=forms.TextInput(attrs=_DAYS)
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})


class RuleForm(forms.Form):
    what = forms.ChoiceField(required=False, label="Items", choices=_WHATS)
    event_type = forms.ChoiceField(required=False, label="Event type", choices=[])
    kind = forms.ChoiceField(required=False, label="Kind", choices=[*_ANY, *MemoryKind.choices])
    type = forms.CharField(required=False, label="Type", max_length=64, widget=forms.TextInput(attrs={"size": 10}))
    scope = forms.ChoiceField(required=False, label="Scope", choices=[*_ANY, *MemoryScope.choices])
    after_days = forms.CharField(
        required=False,
        label="Delete after (days)",
        max_length=10,
        widget=forms.TextInput(attrs={**_DAYS, "placeholder": "never"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        self.fields["event_type"].choices = [*_ANY, *((name, event_words(name)) for name in captured_types())]  # type: ignore[attr-defined]

    def rule(self) -> dict[str, Any] | None:
        """Return the rule for the setting; None for an empty row or one with errors."""
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
            text = explain(error)
            self.add_error(None, f"{text[:1].upper()}{text[1:]}.")
            return None


class _Ordered(_BaseFormSet):
    def add_fields(self, form: RuleForm, index: int | None) -> None:
        super().add_fields(form, index)
        form.fields["ORDER"].label = "Position"


_Rules = formset_factory(RuleForm, formset=_Ordered, extra=1, can_order=True, max_num=MAX_RULES)


class PolicyForm:
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
        return bool(self.problem or self.simple.errors or any(form.errors for form in self.rules))

    def settings(self) -> dict[str, Any] | None:
        """Return the settings, or None if the form has errors."""
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
        self.problem = problem

    def differs_from(self, kept: ProjectSettings) -> bool:
        """Return whether other layers override the submitted settings."""
        wanted = ProjectSettings.model_validate(self._wanted)
        return any(getattr(kept, name) != getattr(wanted, name) for name in (*SIMPLE, "retention"))

    def _in_order(self) -> list[RuleForm]:
        # A stable sort: rows of the same position keep their order.
        forms_: list[Any] = list(self.rules)
        return sorted(forms_, key=lambda form: form.cleaned_data.get("ORDER") or len(forms_))


def _days(typed: str) -> int | str:
    text = typed.strip().lower()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else text or "never"
