"""The page of retention: the plan, the rules, and past runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from governance.admin.retention_form import PolicyForm, rules_in_words, share_words
from governance.models import RetentionRun
from governance.present import size
from governance.retention.run import run_retention
from governance.retention.schemas import Going, Kept, Report, RetentionPlanRequest, RetentionRunRequest, RunView
from governance.retention.selectors import plan_retention, view_run
from memoryhub.config.current_settings import project_settings
from memoryhub.core.admin import HubModelAdmin, cells
from memoryhub.core.admin.access import needs
from memoryhub.core.background import Progress, is_long, start_task
from memoryhub.core.errors import HubError
from memoryhub.core.permissions import Act
from memoryhub.core.stores.store import current_store
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings

_WIDTH = 120


def going_rows(report: Report) -> list[dict[str, Any]]:
    most, words = _most(report.going), rules_in_words()
    return [
        {**_row(going, most), "rule": _rule_text(f"{going.rule}: {going.says}", words), "warning": going.warning}
        for going in report.going
    ]


def kept_rows(report: Report) -> list[dict[str, Any]]:
    """Return a row for each group of kept items, the largest first."""
    most, words = _most(report.kept), rules_in_words()
    return [
        {**_row(kept, most), "reason": _rule_text(kept.says, words)}
        for kept in sorted(report.kept, key=lambda kept: -kept.things)
    ]


def rule_rows() -> list[dict[str, str]]:
    """Return the current rules in order, with their names in the settings."""
    return [{"text": text, "name": named.partition(":")[0]} for named, text in rules_in_words().items()]


def _rule_text(named: str, words: dict[str, str]) -> str:
    # A past run may name a rule that was changed since; a reason may be no rule at all.
    return words.get(named, named)


def _most(shares: Sequence[Going | Kept]) -> int:
    return max((share.bytes for share in shares), default=0)


def _row(share: Going | Kept, most: int) -> dict[str, Any]:
    oldest, newest = f"{share.oldest:%Y-%m-%d}", f"{share.newest:%Y-%m-%d}"
    return {
        "name": share_words(share),
        "things": share.things,
        "size": size(share.bytes),
        "gauge": _gauge(share.bytes, most),
        "from": oldest,
        "to": newest if newest != oldest else "",
        "samples": share.samples,
    }


def _gauge(value: int, most: int) -> SafeString:
    return format_html(
        '<svg class="share" height="6" viewBox="0 0 {} 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="gauge-ground" width="{}" height="6"/><rect class="gauge-fill" width="{}" height="6"/></svg>',
        _WIDTH,
        _WIDTH,
        round(max(2.0, _WIDTH * value / most) if most else 0, 1),
    )


_LATEST = 20


@admin.register(RetentionRun)
class RetentionAdmin(HubModelAdmin):
    change_list_template = "admin/governance/change_list.html"

    def get_urls(self) -> list[URLPattern]:
        own = [
            path("run/", self._governed(self.run_view), name="governance_retentionrun_run"),
            path("policy/", self._governed(self.policy_view), name="governance_retentionrun_policy"),
        ]
        return [*own, *super().get_urls()]

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
            return self._page(request, unconfirmed=_sentence(error.message))
        except ValueError:
            return self._page(
                request, unconfirmed="The digest of the plan is missing. Check the plan and confirm it again."
            )
        if run is None:
            return redirect(self.url("changelist"))
        for level, text in _described(run):
            messages.add_message(request, level, text)
        return redirect(self.url("change", run.id))

    def _run_later(self, command: RetentionRunRequest) -> HttpResponse:
        page = self.url("changelist")
        work = partial(_run, command)
        return redirect(
            "admin:task", start_task("Retention", page=page, work=work, describe=_described, failed=messages.ERROR).id
        )

    def policy_view(self, request: HttpRequest) -> HttpResponse:
        form = PolicyForm(request.POST)
        wanted = form.settings()
        if wanted is None:
            return self._page(request, form=form)
        try:
            kept = change_settings(command=SettingsChange(settings=wanted))
        except HubError as error:
            form.refuse(_sentence(error.message))
            return self._page(request, form=form)
        if form.differs_from(kept):
            messages.warning(request, "Saved, but the environment or config.toml overrides these rules.")
        else:
            messages.success(request, "Saved the rules. The plan below uses them.")
        return redirect(self.url("changelist"))

    def detail(self, request: HttpRequest, found: RetentionRun) -> dict[str, Any]:
        run = view_run(found)
        return {"title": f"Retention #{run.id}", "run": run, "outcome": _outcome(run), **_shown(run.report)}

    detail_template = "admin/governance/retention_run.html"

    def _page(self, request: HttpRequest, *, form: PolicyForm | None = None, **context: Any) -> HttpResponse:
        plan = plan_retention(command=RetentionPlanRequest())
        common = {
            "title": "Retention",
            "plan": plan,
            "rules": rule_rows(),
            "form": form or PolicyForm(initial=project_settings()),
            "word": current_store().name,
            "latest": RetentionRun.objects.order_by("-id")[:_LATEST],
            **_shown(plan),
        }
        return self.page(request, "admin/governance/retention.html", None, **common, **context)


def _shown(report: Report) -> dict[str, Any]:
    return {
        "going": going_rows(report),
        "kept": kept_rows(report),
        "size": size(report.bytes),
        "kept_things": sum(kept.things for kept in report.kept),
    }


def _run(command: RetentionRunRequest, report: Progress) -> RunView | None:
    return run_retention(command=command, progress=report)


def _described(run: RunView | None) -> list[tuple[int, str]]:
    return [(messages.SUCCESS, f"{_outcome(run)} This cannot be undone.")] if run else []


def _outcome(run: RunView) -> str:
    if run.ran_at is None:
        return "This run was interrupted. Run retention again to complete it."
    items, events = cells.counted(run.report.things, "item"), cells.counted(run.events, "event")
    return f"Deleted {items} in {events}, {size(run.bytes)}."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
