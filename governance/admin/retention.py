"""The page of retention: what would go today and what keeps the rest, the rules, and what went so far."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from governance.admin.retention_form import PolicyForm
from governance.admin.retention_rows import going_rows, kept_rows, rule_rows
from governance.admin.section import GovernanceAdmin
from governance.models import RetentionRun
from governance.retention.present import size
from governance.retention.run import run_retention
from governance.retention.schemas import Report, RetentionPlanRequest, RetentionRunRequest, RunView
from governance.retention.selectors import plan_retention, view_run
from memoryhub.core.admin import cells
from memoryhub.core.admin.access import needs
from memoryhub.core.errors import HubError
from memoryhub.core.permissions import Act
from memoryhub.core.stores import current_store
from sessions_app.schemas import SettingsChange
from sessions_app.services.settings import change_settings
from sessions_app.settings import project_settings

_LATEST = 20


@admin.register(RetentionRun)
class RetentionAdmin(GovernanceAdmin):
    """Shows the plan first; what was typed and the plan's digest let it run."""

    def get_urls(self) -> list[URLPattern]:
        """Add the run, and the rules."""
        own = [
            path("run/", self._governed(self.run_view), name="governance_retentionrun_run"),
            path("policy/", self._governed(self.policy_view), name="governance_retentionrun_policy"),
        ]
        return [*own, *super().get_urls()]

    def _governed(self, view: Any) -> Any:
        return self.admin_site.admin_view(require_POST(needs(Act.GOVERN, view)))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show what would go now, what stays and why, the rules, and what went so far."""
        return self._page(request)

    def run_view(self, request: HttpRequest) -> HttpResponse:
        """Take what was looked at, if the name was typed."""
        name = current_store().name
        if request.POST.get("typed", "").strip() != name:
            return self._page(request, unconfirmed=f"Type {name} to confirm; nothing was taken.")
        try:
            run = run_retention(command=RetentionRunRequest(digest=request.POST.get("digest", "")))
        except HubError as error:
            return self._page(request, unconfirmed=_sentence(error.message))
        except ValueError:
            return self._page(request, unconfirmed="The plan was not named; look at it again.")
        if run is None:
            return redirect(self.url("changelist"))
        messages.success(request, f"{_told(run)} It is for good: no one can bring it back.")
        return redirect(self.url("change", run.id))

    def policy_view(self, request: HttpRequest) -> HttpResponse:
        """Change the rules."""
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
            messages.warning(request, "Saved, but the environment or config.toml says otherwise, and goes first.")
        else:
            messages.success(request, "The rules were saved; below is what they would take now.")
        return redirect(self.url("changelist"))

    def detail(self, request: HttpRequest, found: RetentionRun) -> dict[str, Any]:
        """Return the report of one run."""
        run = view_run(found)
        return {"title": f"Retention #{run.id}", "run": run, "told": _told(run), **_shown(run.report)}

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
        "kept_things": sum(each.things for each in report.kept),
    }


def _told(run: RunView) -> str:
    if run.ran_at is None:
        return "This run was cut off; run retention again to bring it to its end."
    things, events = cells.counted(run.report.things, "thing"), cells.counted(run.events, "event")
    return f"{things} went, {events} of the log, {size(run.bytes)}."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
