"""The page of redaction: the selection, its preview, and past redactions."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path

from governance.models import Redaction
from governance.redaction.copies import last_look
from governance.redaction.schemas import RedactionDone, RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories.admin.listing import marked_excerpt
from memoryhub.core import log
from memoryhub.core.admin import HubModelAdmin, cells, needs
from memoryhub.core.admin.schema_form import SchemaForm, posted
from memoryhub.core.background import Progress, is_long, start_task
from memoryhub.core.errors import ConfirmationRequired, HubError
from memoryhub.core.permissions import Act
from memoryhub.core.text import as_sentence

_WAYS = (
    ("text", "Exact text"),
    ("pattern", "Regular expression (RE2)"),
    ("rules", "Matches of the current secret rules"),
    ("whole", "The whole text of the items selected below"),
)


class RedactionForm(SchemaForm[RedactionSelect]):
    schema = RedactionSelect
    error_fields = {"text": "target", "pattern": "target"}
    way = forms.ChoiceField(label="Redact", choices=_WAYS, initial="text")
    target = forms.CharField(
        required=False,
        label="Text or regular expression",
        strip=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "autocomplete": "off"}),
    )
    ignore_case = forms.BooleanField(required=False, label="Ignore case")
    label = forms.CharField(
        required=False,
        max_length=40,
        label="Placeholder label",
        help_text="The text becomes [REDACTED:label]. Default: [REDACTED:removed].",
    )
    ids = forms.CharField(
        required=False, label="Only in these items", help_text="Numbers such as 412, 633. Default: the whole store."
    )
    search = forms.CharField(
        required=False, max_length=2_000, label="Only in search results", help_text="A query. Default: the whole store."
    )

    def values(self) -> dict[str, Any]:
        typed = self.cleaned_data
        fields = {name: typed[name] for name in ("ignore_case", "label", "search") if typed[name]}
        fields[typed["way"]] = typed["target"].replace("\r\n", "\n")
        if typed["way"] in ("rules", "whole"):
            fields[typed["way"]] = True
        numbers = typed["ids"].replace("#", " ").replace(",", " ").split()
        if numbers:
            fields["ids"] = numbers
        return fields


WORD_TO_TYPE = "redact"
_LATEST = 20


@admin.register(Redaction)
class RedactionAdmin(HubModelAdmin):
    def get_urls(self) -> list[URLPattern]:
        act = self.admin_site.admin_view(needs(Act.GOVERN, self.run_view))
        return [path("run/", act, name="governance_redaction_run"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        # Pages of items link here with their number
        form = RedactionForm(
            posted(request), initial={name: request.GET[name] for name in ("ids", "way") if name in request.GET}
        )
        preview = needs(Act.GOVERN, self._previewed)(request, form) if form.is_bound else {}
        return self._page(request, form, **preview)

    def run_view(self, request: HttpRequest) -> HttpResponse:
        form = RedactionForm(request.POST or None)
        selection = form.command()
        if selection is None:
            return redirect(self.url("changelist"))
        if request.POST.get("typed", "").strip().lower() != WORD_TO_TYPE:
            problem = f"Type {WORD_TO_TYPE} to confirm. Nothing was changed."
            return self._page(request, form, **self._previewed(request, form), unconfirmed=problem)
        confirmed = {name: request.POST.get(name, "") for name in ("confirm_token", "reason")}
        command = RedactionRun(**selection.model_dump(exclude_unset=True), **confirmed)
        try:
            if is_long():
                return self._redact_later(command)
            result = redact(command=command)
        except ConfirmationRequired:
            changed = (
                "The log has changed since the preview. Check the new preview and confirm it. Nothing was changed."
            )
            return self._page(request, form, **self._previewed(request, form), unconfirmed=changed)
        except HubError as error:
            return self._page(request, form, problem=error.message)
        for level, text in _described(result):
            messages.add_message(request, level, text)
        return redirect(self.url("changelist"))

    def _redact_later(self, command: RedactionRun) -> HttpResponse:
        total = log.head()[0]

        def work(report: Progress) -> RedactionDone:
            report(0, total)
            return redact(command=command, progress=lambda events: report(min(events, total), total))

        page = self.url("changelist")
        task = start_task("Redaction", page=page, work=work, describe=_described)
        return redirect("admin:task", task.id)

    def change_view(self, request: HttpRequest, object_id: str, *_: Any, **_options: Any) -> HttpResponse:
        return redirect("admin:core_rawevent_change", self.find(request, object_id).pk)

    def _previewed(self, request: HttpRequest, form: RedactionForm) -> Any:
        selection = form.command()
        if selection is None:
            return {}
        try:
            preview = preview_redaction(command=selection)
        except HubError as error:
            return {"problem": as_sentence(error.message)}
        rows = [(place, marked_excerpt(place.before, place.marked, tag="del")) for place in preview.places]
        return {"preview": preview, "rows": rows, "word": WORD_TO_TYPE}

    def _page(self, request: HttpRequest, form: RedactionForm, **context: Any) -> HttpResponse:
        latest = Redaction.objects.order_by("-id")[:_LATEST]
        common = {"title": "Redaction", "form": form, "latest": latest, "look": last_look()}
        return self.page(request, "admin/governance/redaction.html", None, **common, **context)


def _described(result: RedactionDone) -> list[tuple[int, str]]:
    summary = f"Redacted {cells.counted(result.finds, 'match', 'matches')} in {cells.counted(result.events, 'event')}"
    if result.spooled:
        summary += f" and {cells.counted(result.spooled, 'event')} in the spool"
    searched = f"{cells.counted(result.searched_files, 'file')} ({result.searched_bytes / 1e6:.1f} MB)"
    summary += f", then searched {searched} byte by byte."
    if not result.left:
        summary += " No copy was found."
    remains = [(messages.WARNING, f"Still in {place.where}: {place.why}.") for place in result.left]
    unproven = [(messages.INFO, f"Not searched: {place.where}: {place.why}.") for place in result.unproven]
    return [(messages.SUCCESS, summary), *remains, *unproven]
