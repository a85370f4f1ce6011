"""Pages that record or supersede decisions and add links and evidence: each one calls one service."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from pydantic import ValidationError

from decisions import services
from decisions.admin.filters import used_words
from decisions.admin.forms import MORE, DecisionForm, RecordForm, SupersedeForm, error_text, ids_in, with_more_rows
from decisions.admin.listing import DecisionListAdmin
from decisions.models import Decision, DecisionStatus
from decisions.schemas import DecisionEvidence, DecisionLink, DecisionMark, DecisionResult, DecisionUnlink
from decisions.selectors import find_decisions, heads
from memories.admin.answers import warn_of_redactions
from memories.admin.relations import plain_answer
from memoryhub.core.errors import Conflict, Gone, HubError, Invalid, NotFound
from memoryhub.core.permissions import Act, require
from memoryhub.core.validation import explain

FORM = "admin/decisions/form.html"
_REFUSALS = (Conflict, Invalid, NotFound)

Change = Callable[[], DecisionResult]
Record = Callable[..., DecisionResult]


class DecisionEditing(DecisionListAdmin):
    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        require(request.user, Act.WRITE)
        context = {"title": "Record a decision", "button": "Record", "here": "New", "back": self.url("changelist")}
        return self._recording(request, RecordForm, services.record_decision, context)

    def supersede_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        earlier: Decision = self.find(request, object_id)
        context = {
            "title": f"Supersede #{earlier.id}",
            "button": "Record and supersede",
            "here": "Supersede",
            "back": self.url("change", earlier.id),
            "replacements": self._replacements([earlier.id]),
        }
        make = partial(SupersedeForm, earlier)
        return self._recording(request, make, services.supersede_decision, context, earlier)

    def _recording(
        self, request: HttpRequest, make: Any, record: Record, context: dict[str, Any], earlier: Decision | None = None
    ) -> HttpResponse:
        form = _form(request, make)
        command = form.command() if form.is_bound else None
        if command:
            try:
                return self._recorded(request, record(command=command))
            except HubError as error:
                form.refuse(error)
                if "heads" in error.data:
                    context["replacements"] = self._replacements([error.data["id"]])
        topics = used_words("topic")
        return self.page(request, FORM, earlier, **context, form=form, topics=topics)

    def _replacements(self, ids: list[int]) -> list[Decision]:
        found = [head for decision_id, newest in heads(ids).items() for head in newest if head != decision_id]
        return find_decisions(found)

    def _recorded(self, request: HttpRequest, result: DecisionResult) -> HttpResponse:
        replaced = ", ".join(f"#{decision_id}" for decision_id in result.superseded)
        effect = f", which supersedes {replaced}" if replaced else ""
        if result.supersedes_once_accepted:
            waiting = ", ".join(f"#{decision_id}" for decision_id in result.supersedes_once_accepted)
            effect += f", which will supersede {waiting} once it is accepted"
        messages.success(request, f"Recorded #{result.id}{effect}.")
        warn_of_redactions(request, result.redacted)
        return redirect(self.url("change", result.id))

    def mark_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Set the status of a decision, or confirm that it is still valid."""
        decision: Decision = self.find(request, object_id)
        is_review = "reviewed" in request.POST
        given = {"reviewed": True} if is_review else {"status": request.POST.get("status", "")}

        def change() -> DecisionResult:
            command = DecisionMark.model_validate(
                {"id": decision.id, "reason": request.POST.get("reason", "").strip(), **given}
            )
            return services.mark_decision(command=command)

        label = dict(DecisionStatus.choices).get(request.POST.get("status", ""), "")
        message = "Confirmed that the decision is still valid." if is_review else f"Set the status to {label.lower()}."
        return self._changed(request, decision, change, message=message)

    def link_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        decision: Decision = self.find(request, object_id)
        typed = ids_in(request.POST.get("to", ""))

        def change() -> DecisionResult:
            given = {"relation": request.POST.get("relation", ""), "to": " ".join(typed)}
            command = DecisionLink.model_validate({"id": decision.id, **given})
            return services.link_decisions(command=command)

        return self._changed(request, decision, change, where="#edges")

    def unlink_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        decision: Decision = self.find(request, object_id)

        def change() -> DecisionResult:
            fields = {name: request.POST.get(name, "") for name in ("id", "relation", "to")}
            return services.unlink_decisions(command=DecisionUnlink.model_validate(fields))

        return self._changed(request, decision, change, message="Removed.", where="#edges")

    def evidence_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        decision: Decision = self.find(request, object_id)
        field, _, link_type = request.POST.get("kind", "").partition(":")

        def change() -> DecisionResult:
            given: dict[str, Any] = {field: [request.POST.get("value", "").strip()]}
            if link_type:
                given["link_type"] = link_type
            command = DecisionEvidence.model_validate({"id": decision.id, **given})
            return services.add_evidence(command=command)

        return self._changed(request, decision, change, where="#evidence")

    def lookup_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        self.find(request, object_id)
        typed = "".join(ids_in(request.GET.get("target", "")))
        if not (typed.isascii() and typed.isdecimal() and len(typed) <= 15):
            return plain_answer("Enter the number of a decision, such as #412.", is_found=False)
        try:
            (found,) = find_decisions([int(typed)])
        except (NotFound, Gone) as error:
            return plain_answer(error_text(error), is_found=False)
        return plain_answer(f"{found.get_status_display()}: {found.title}", is_found=True)

    def _changed(
        self, request: HttpRequest, decision: Decision, change: Change, *, message: str = "Added.", where: str = ""
    ) -> HttpResponse:
        try:
            result = change()
        except ValidationError as error:
            messages.error(request, error_text(Invalid(explain(error))))
        except _REFUSALS as refusal:
            messages.error(request, error_text(refusal))
        else:
            messages.success(request, message if result.is_new else "Nothing changed: it already exists.")
            warn_of_redactions(request, result.redacted)
        return redirect(f"{self.url('change', decision.id)}{where}")


def _form(request: HttpRequest, make: Any) -> DecisionForm:
    if request.method != "POST":
        return make()  # type: ignore[no-any-return]
    return with_more_rows(make, request.POST) if MORE in request.POST else make(request.POST)
