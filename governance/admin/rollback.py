"""The page of roll-backs: whose doings, what came of them, what is done about that; and undoing it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import URLPattern, path

from governance.admin.rollback_form import RollbackForm
from governance.admin.rollback_rows import counts_said, group_rows, left_rows, selection_said, step_rows
from governance.admin.section import GovernanceAdmin
from governance.models import Rollback
from governance.taint.schemas import Preview, RollbackMake, RollbackPlan, RollbackUndo
from governance.taint.services import preview, roll_back, undo_rollback
from governance.taint.sources import sources
from memoryhub.core.admin import cells
from memoryhub.core.admin.access import needs
from memoryhub.core.errors import ConfirmationRequired, HubError
from memoryhub.core.permissions import Act

_LATEST = 20
_SHOWN = 200
_CHANGED = "The log has changed since you looked; below is what would be done now. Nothing was changed."


@admin.register(Rollback)
class RollbackAdmin(GovernanceAdmin):
    """Looks first, then acts; each roll-back that was made can be undone."""

    def get_urls(self) -> list[URLPattern]:
        """Add the act, and its undoing."""
        own = [
            path("run/", self._governed(self.run_view), name="governance_rollback_run"),
            path("<int:rollback_id>/undo/", self._governed(self.undo_view), name="governance_rollback_undo"),
        ]
        return [*own, *super().get_urls()]

    def _governed(self, view: Any) -> Any:
        return self.admin_site.admin_view(needs(Act.GOVERN, view))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the form, what came of what it chooses, what would be done, and what was rolled back so far."""
        return self._looked(request, request.GET)

    def run_view(self, request: HttpRequest) -> HttpResponse:
        """Do what was looked at, and nothing else."""
        form = RollbackForm(request.POST or None, sources())
        plan = form.plan() if form.is_bound else None
        if plan is None:
            return redirect(self.url("changelist"))
        confirmed = {name: request.POST.get(name, "") for name in ("confirm_token", "reason")}
        try:
            made = roll_back(command=RollbackMake(**plan.model_dump(), **confirmed))
        except ConfirmationRequired:
            return self._looked(request, request.POST, unconfirmed=_CHANGED)
        except HubError as error:
            return self._looked(request, request.POST, problem=_sentence(error))
        messages.success(request, f"Roll-back #{made.id} is made: {counts_said(made.counts)}. It can be undone below.")
        return redirect(self.url("changelist"))

    def undo_view(self, request: HttpRequest, rollback_id: int) -> HttpResponse:
        """Undo a roll-back."""
        if request.method != "POST":
            return redirect(self.url("change", rollback_id))
        try:
            undone = undo_rollback(command=RollbackUndo(id=rollback_id, reason=request.POST.get("reason", "")))
        except HubError as error:
            messages.error(request, _sentence(error))
            return redirect(self.url("changelist"))
        messages.success(request, f"Roll-back #{undone.id} is undone.")
        if undone.undone_left:
            left = cells.counted(len(undone.undone_left), "thing")
            messages.warning(request, f"{left} left as they are; the page of the roll-back names them.")
        return redirect(self.url("changelist"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show what one roll-back did and left."""
        found = self.find(request, object_id)
        context = {
            "title": f"Roll-back #{found.pk}",
            "chosen": selection_said(found.selection),
            "steps": step_rows(found.steps[:_SHOWN]),
            "steps_cut": max(0, len(found.steps) - _SHOWN),
            "left": left_rows(found.left[:_SHOWN]),
            "undone_left": left_rows(found.undone_left[:_SHOWN]),
        }
        return self.page(request, "admin/governance/rollback_made.html", found, **context)

    def _looked(self, request: HttpRequest, asked: QueryDict, **context: Any) -> HttpResponse:
        form = RollbackForm(asked if asked else None, sources())
        plan = form.plan() if form.is_bound else None
        shown = _previewed(plan) if plan else {}
        latest = [_made(each) for each in Rollback.objects.order_by("-id")[:_LATEST]]
        chosen = [(name, value) for name in asked for value in asked.getlist(name) if name not in _NOT_CHOSEN]
        common = {"title": "Roll back", "form": form, "latest": latest, "chosen": chosen}
        return self.page(request, "admin/governance/rollback.html", None, **{**common, **shown, **context})


_NOT_CHOSEN = frozenset({"csrfmiddlewaretoken", "confirm_token", "reason"})


def _previewed(plan: RollbackPlan) -> dict[str, Any]:
    try:
        shown = preview(command=plan)
    except HubError as error:
        return {"problem": _sentence(error)}
    return {"preview": shown, **_shown(shown, plan)}


def _shown(shown: Preview, plan: RollbackPlan) -> dict[str, Any]:
    total = sum(shown.counts.values())
    verb = "Quarantine" if shown.action == "quarantine" else "Undo"
    return {
        "direct": group_rows(shown.trace.direct, plan),
        "derived": group_rows(shown.trace.derived, plan),
        "left": left_rows([each.model_dump() for each in shown.left]),
        "done": counts_said(shown.counts),
        "total": total,
        "act_label": f"{verb} {cells.counted(total, 'thing')}",
    }


def _made(rollback: Rollback) -> dict[str, Any]:
    kinds = [step["do"] for step in rollback.steps]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return {"row": rollback, "chosen": selection_said(rollback.selection), "done": counts_said(counts)}


def _sentence(error: HubError) -> str:
    return f"{error.message[:1].upper()}{error.message[1:]}."
