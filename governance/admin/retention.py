"""The page of retention: the plan, the rules and their form, and past runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.forms import formset_factory
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from governance.models import RetentionRun
from governance.present import NOUNS, size, thing_name
from governance.retention.candidates import CONDITIONS, RetentionPolicy, day_start
from governance.retention.schemas import Report, RetentionPlanRequest, RetentionRunRequest, RunView, Share
from governance.retention.selectors import plan_retention, view_run
from governance.retention.service import run_retention
from memories.models import MemoryKind, MemoryScope
from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.config.retention_rules import MAX_RULES, RetentionRule, What, captured_types
from memoryhub.core import clock
from memoryhub.core.admin import HubModelAdmin, cells, needs
from memoryhub.core.admin.schema_form import SchemaForm
from memoryhub.core.background import Progress, is_long, start_task
from memoryhub.core.errors import HubError
from memoryhub.core.events.event_types import Retention, event_type
from memoryhub.core.kinds import KINDS
from memoryhub.core.permissions import Act
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import as_sentence, counted
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings

_WIDTH = 120


def _share_rows(shares: Sequence[Share]) -> list[dict[str, Any]]:
    most = max((share.bytes for share in shares), default=0)
    rows = []
    for share in shares:
        oldest = f"{share.oldest:%Y-%m-%d}"
        newest = f"{share.newest:%Y-%m-%d}"
        row = {
            "name": share_words(share),
            "things": share.things,
            "size": size(share.bytes),
            "gauge": _gauge(max(2.0, _WIDTH * share.bytes / most) if most else 0),
            "from": oldest,
            "to": newest if newest != oldest else "",
            "samples": share.samples,
        }
        rows.append(row)
    return rows


def _gauge(width: float) -> SafeString:
    return format_html(
        '<svg class="share" height="6" viewBox="0 0 {} 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="gauge-ground" width="{}" height="6"/><rect class="gauge-fill" width="{}" height="6"/></svg>',
        _WIDTH,
        _WIDTH,
        round(width, 1),
    )


_LATEST = 20


@admin.register(RetentionRun)
class RetentionAdmin(HubModelAdmin):
    detail_template = "admin/governance/retention_run.html"

    def get_urls(self) -> list[URLPattern]:
        urls = [
            path("run/", self._governed(self.run_view), name="governance_retentionrun_run"),
            path("policy/", self._governed(self.policy_view), name="governance_retentionrun_policy"),
        ]
        return [*urls, *super().get_urls()]

    def _governed(self, view: Any) -> Any:
        return self.admin_site.admin_view(require_POST(needs(Act.GOVERN, view)))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return self._page(request)

    def run_view(self, request: HttpRequest) -> HttpResponse:
        name = current_store().name
        if request.POST.get("typed", "").strip() != name:
            return self._page(request, unconfirmed=f"Type {name} to confirm. Nothing was deleted.")
        try:
            command = RetentionRunRequest(digest=request.POST.get("digest", ""))
            if is_long():
                return self._run_later(command)
            run = run_retention(command=command)
        except HubError as error:
            return self._page(request, unconfirmed=as_sentence(error.message))
        except ValueError:
            problem = "The digest of the plan is missing. Check the plan and confirm it again."
            return self._page(request, unconfirmed=problem)
        if run is None:
            return redirect(self.url("changelist"))
        for level, text in _described(run):
            messages.add_message(request, level, text)
        return redirect(self.url("change", run.id))

    def _run_later(self, command: RetentionRunRequest) -> HttpResponse:
        def work(report: Progress) -> RunView | None:
            return run_retention(command=command, progress=report)

        page = self.url("changelist")
        task = start_task("Retention", page=page, work=work, describe=_described)
        return redirect("admin:task", task.id)

    def policy_view(self, request: HttpRequest) -> HttpResponse:
        form = PolicyForm(request.POST)
        settings = form.settings()
        if settings is None:
            return self._page(request, form=form)
        try:
            effective = change_settings(command=SettingsChange(settings=settings))
        except HubError as error:
            form.problem = as_sentence(error.message)
            return self._page(request, form=form)
        if form.differs_from(effective):
            messages.warning(request, "Saved, but the environment or config.toml overrides these rules.")
        else:
            messages.success(request, "Saved the rules. The plan below uses them.")
        return redirect(self.url("changelist"))

    def detail(self, request: HttpRequest, instance: RetentionRun) -> dict[str, Any]:
        run = view_run(instance)
        return {"title": f"Retention #{run.id}", "run": run, "outcome": _outcome(run), **_report_rows(run.report)}

    def _page(self, request: HttpRequest, *, form: PolicyForm | None = None, **context: Any) -> HttpResponse:
        plan = plan_retention(command=RetentionPlanRequest())
        rules = [{"text": text, "name": name.partition(":")[0]} for name, text in rules_in_words().items()]
        common = {
            "title": "Retention",
            "plan": plan,
            "rules": rules,
            "form": form or PolicyForm(initial=project_settings()),
            "word": current_store().name,
            "latest": RetentionRun.objects.order_by("-id")[:_LATEST],
            **_report_rows(plan),
        }
        return self.page(request, "admin/governance/retention.html", None, **common, **context)


def _report_rows(report: Report) -> dict[str, Any]:
    words = rules_in_words()
    going = _share_rows(report.going)
    for row, share in zip(going, report.going, strict=True):
        # A past run may name a rule that was changed since
        rule = f"{share.rule}: {share.says}"
        row |= {"rule": words.get(rule, rule), "warning": share.warning}
    largest_first = sorted(report.kept, key=lambda share: -share.things)
    protected = _share_rows(largest_first)
    for row, reason in zip(protected, largest_first, strict=True):
        row["reason"] = words.get(reason.says, reason.says)
    return {
        "going": going,
        "kept": protected,
        "size": size(report.bytes),
        "kept_things": sum(share.things for share in report.kept),
    }


def _described(run: RunView | None) -> list[tuple[int, str]]:
    return [(messages.SUCCESS, f"{_outcome(run)} This cannot be undone.")] if run else []


def _outcome(run: RunView) -> str:
    if run.ran_at is None:
        return "This run was interrupted. Run retention again to complete it."
    items, events = cells.counted(run.report.things, "item"), cells.counted(run.events, "event")
    return f"Deleted {items} in {events}, {size(run.bytes)}."


_STATES = {What.DELETED: "deleted", What.MEMORY: "live"}


def share_words(share: Share) -> str:
    many = share.things != 1
    nouns = _captured_nouns(share.sub)
    if nouns:
        return nouns[many]
    state = _STATES.get(What(share.what))
    if state and share.sub in KINDS:
        return f"{state} {KINDS[share.sub].counted[many]}"
    return thing_name(share)


def event_words(type_name: str) -> str:
    """Return the plural noun of an event type, such as ``prompts``, or the type itself."""
    nouns = _captured_nouns(type_name)
    return nouns[1] if nouns else type_name


def _captured_nouns(type_name: str) -> tuple[str, str] | None:
    kind = event_type(type_name)
    if kind is None or kind.retention is not Retention.CAPTURED:
        return None
    return kind.nouns


def rule_words(rule: RetentionRule) -> str:
    """Return a rule as a sentence: ``Prompts are deleted after 30 days``."""
    subject = _subject(rule)
    outcome = "kept"
    if rule.after_days is not None:
        verb = "purged" if rule.what is What.DELETED else "deleted"
        outcome = f"{verb} after {counted(rule.after_days, 'day')}"
    return f"{subject[:1].upper()}{subject[1:]} are {outcome}"


def _subject(rule: RetentionRule) -> str:
    if rule.event_type:
        return event_words(rule.event_type)
    subject = NOUNS[rule.what][1]
    if rule.kind:
        subject = f"{_STATES[rule.what]} {KINDS[rule.kind].counted[1]}"
    if rule.type:
        subject += f" of type {rule.type}"
    if rule.scope:
        subject += f" in scope {rule.scope}"
    return subject


def rules_in_words() -> dict[str, str]:
    """Map the rules as plans name them, such as ``rule 1: deleted after 500 days``, to sentences, in order."""
    policy = RetentionPolicy.current(day_start(clock.now()))
    return {f"{policy.name(index)}: {rule.sentence()}": rule_words(rule) for index, rule in enumerate(policy.rules)}


SIMPLE = ("retention_days", "purge_deleted_after_days")

_ANY = [("", "any")]
_WHATS = [("", "no rule"), *((what, several) for what, (_, several) in NOUNS.items())]
_DAYS = {"size": 6, "inputmode": "numeric", "autocomplete": "off"}


class SimpleForm(forms.Form):
    retention_days = forms.CharField(label="Delete captured events after (days)", widget=forms.TextInput(attrs=_DAYS))
    purge_deleted_after_days = forms.CharField(
        label="Purge deleted memories after (days)", widget=forms.TextInput(attrs=_DAYS)
    )


class RetentionRuleForm(SchemaForm[RetentionRule]):
    schema = RetentionRule
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
        super().__init__(*args, **kwargs)
        self.fields["event_type"].choices = [*_ANY, *((name, event_words(name)) for name in captured_types())]  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        typed = self.cleaned_data
        conditions = {name: typed[name].strip() for name in CONDITIONS if typed.get(name, "").strip()}
        return {"what": typed["what"], **conditions, "after_days": _days(typed.get("after_days", ""))}

    def rule(self) -> dict[str, Any] | None:
        """Return the rule without what it does not say; None if there is none, or the form has errors."""
        rule = self.command() if self.cleaned_data.get("what") else None
        if rule is None:
            return None
        return {name: value for name, value in rule.model_dump(mode="json").items() if value is not None}


class _Ordered(forms.BaseFormSet):  # type: ignore[type-arg]
    def add_fields(self, form: RetentionRuleForm, index: int | None) -> None:
        super().add_fields(form, index)
        form.fields["ORDER"].label = "Position"


_Rules = formset_factory(RetentionRuleForm, formset=_Ordered, extra=1, can_order=True, max_num=MAX_RULES)


class PolicyForm:
    def __init__(self, data: Any = None, *, initial: ProjectSettings | None = None) -> None:
        self.problem = ""
        if initial is None:
            self.simple = SimpleForm(data, label_suffix="")
            self.rules = _Rules(data, prefix="rules")
            return
        days = {name: getattr(initial, name) or "never" for name in SIMPLE}
        self.simple = SimpleForm(initial=days, label_suffix="")
        rules = [
            {**rule.model_dump(mode="json"), "after_days": rule.after_days or "never"} for rule in initial.retention
        ]
        self.rules = _Rules(initial=rules, prefix="rules")

    @property
    def has_errors(self) -> bool:
        return bool(self.problem or self.simple.errors or any(form.errors for form in self.rules))

    def settings(self) -> dict[str, Any] | None:
        if not (self.simple.is_valid() and self.rules.is_valid()):
            return None
        rules = [form.rule() for form in self._in_order()]
        if self.has_errors:
            return None
        self._submitted = {
            **{name: _days(self.simple.cleaned_data[name]) for name in SIMPLE},
            "retention": [rule for rule in rules if rule],
        }
        return self._submitted

    def differs_from(self, effective: ProjectSettings) -> bool:
        submitted = ProjectSettings.model_validate(self._submitted)
        return any(getattr(effective, name) != getattr(submitted, name) for name in (*SIMPLE, "retention"))

    def _in_order(self) -> list[RetentionRuleForm]:
        # A stable sort: rows of the same position keep their order.
        forms_: list[Any] = list(self.rules)
        return sorted(forms_, key=lambda form: form.cleaned_data.get("ORDER") or len(forms_))


def _days(typed: str) -> int | str:
    text = typed.strip().lower()
    if text.isascii() and text.isdecimal() and len(text) < 9:
        return int(text)
    return text or "never"
