"""The recheck queue: one stale item at a time, with its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from governance.models import Affirmation
from governance.staleness.schemas import Affirm, AffirmResult, Retire, RetireResult, StaleKind, Why
from governance.staleness.selectors import StaleGroup, stale_group, stale_item
from governance.staleness.service import affirm, retire
from governance.staleness.working_tree import diff_of_file
from memories.admin.base import sentence, warn_of_redactions
from memories.admin.rendering import render
from memoryhub.core import clock
from memoryhub.core.admin import HubModelAdmin, needs, next_page, page_of_entity
from memoryhub.core.errors import Gone, HubError, Invalid, NotFound
from memoryhub.core.kinds import KINDS
from memoryhub.core.permissions import Act
from memoryhub.core.text import counted
from sessions_app.selectors import caller_tree

_LEFT_OUT = ("index ", "--- ", "+++ ", "similarity ", "old mode", "new mode")
_MARKS = {"+": "added", "-": "removed", "@": "place", "\\": "note", "…": "note"}


def patch(diff: str) -> SafeString:
    """Return a git diff as HTML; lines keep their signs for readers who don't see colours."""
    parts = ((name, _marked_lines(lines)) for name, lines in _files_of(diff))
    return format_html_join("", '<h4 class="patch-file">{}</h4><pre class="patch" tabindex="0">{}</pre>', parts)


def _files_of(diff: str) -> Iterator[tuple[str, list[str]]]:
    name = ""
    lines: list[str] = []
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            if name:
                yield name, lines
            name = line.rpartition(" b/")[2]
            lines = []
        else:
            lines.append(line)
    if name:
        yield name, lines


def _marked_lines(lines: list[str]) -> SafeString:
    start = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    marked = [("note", line) for line in lines[:start] if line and not line.startswith(_LEFT_OUT)]
    marked += [(_MARKS.get(line[:1], "same"), line) for line in lines[start:]]
    return format_html_join("", '<span class="line-{}">{}\n</span>', marked) or format_html("{}", "")


_PAGE = "admin/governance/staleness.html"


class RecheckForm(forms.Form):
    reason = forms.CharField(required=False, max_length=1_000)
    valid_until = forms.DateTimeField(required=False)

    def affirm(self, entity_id: int) -> AffirmResult:
        if not self.is_valid():
            raise Invalid("enter a time such as 2026-12-31 or 2026-12-31 18:00, and a note of at most 1,000 characters")
        return affirm(command=Affirm(id=entity_id, **self.cleaned_data))

    def retire(self, entity_id: int) -> RetireResult:
        if not self.is_valid():
            raise Invalid("enter a reason of at most 1,000 characters")
        return retire(command=Retire(id=entity_id, reason=self.cleaned_data["reason"]))


@admin.register(Affirmation)
class AffirmationAdmin(HubModelAdmin):
    def get_urls(self) -> list[URLPattern]:
        see, may_review = self.admin_site.admin_view, Act.REVIEW
        return [
            path("<int:entity_id>/", see(self.item_view), name="governance_affirmation_item"),
            path("group/<int:number>/", see(self.group_view), name="governance_affirmation_group"),
            path(
                "group/<int:number>/verdict/",
                see(require_POST(needs(may_review, self.group_verdict_view))),
                name="governance_affirmation_group_verdict",
            ),
            path(
                "<int:entity_id>/affirm/",
                see(require_POST(needs(may_review, self.affirm_view))),
                name="governance_affirmation_affirm",
            ),
            path(
                "<int:entity_id>/retire/",
                see(require_POST(needs(may_review, self.retire_view))),
                name="governance_affirmation_retire",
            ),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return self._show_single(request, stale_item())

    def item_view(self, request: HttpRequest, entity_id: int) -> HttpResponse:
        try:
            return self._show_single(request, stale_item(entity_id))
        except (NotFound, Gone) as error:
            messages.info(request, sentence(error))
            return redirect(self.url("changelist"))

    def group_view(self, request: HttpRequest, number: int) -> HttpResponse:
        match = stale_group(number)
        if match is None:
            return redirect("admin:inbox")
        group, items = match
        kind = "branch" if group.why is Why.DROPPED else "file"
        request.inbox_key = f"{kind}-{number}"  # type: ignore[attr-defined]
        context = {"title": "Inbox", "group": group, "is_branch": group.why is Why.DROPPED}
        rows = [_group_row(item, group) for item in items]
        return self.page(request, _GROUP_PAGE, None, **context, rows=rows, patch=_group_patch(group))

    def group_verdict_view(self, request: HttpRequest, number: int) -> HttpResponse:
        """Affirm or retire the entries of a group that the page has shown."""
        ids = [int(text) for text in request.POST.getlist("id")[:_MOST_OF_GROUP] if text.isdecimal() and len(text) < 16]
        reason = request.POST.get("reason", "").strip()[:1_000]
        is_affirmed = request.POST.get("verdict") != "retire"
        count = 0
        for entity_id in ids:
            try:
                if is_affirmed:
                    affirm(command=Affirm(id=entity_id, reason=reason))
                else:
                    retire(command=Retire(id=entity_id, reason=reason))
                count += 1
            except HubError as error:
                messages.warning(request, sentence(error))
        if count:
            outcome = "confirmed. This cannot be undone." if is_affirmed else "retired."
            messages.success(request, f"{counted(count, 'entry', 'entries')} {outcome}")
        return redirect(next_page(request) or "admin:inbox")

    def affirm_view(self, request: HttpRequest, entity_id: int) -> HttpResponse:
        return self._give(request, entity_id, RecheckForm(request.POST).affirm)

    def retire_view(self, request: HttpRequest, entity_id: int) -> HttpResponse:
        return self._give(request, entity_id, RecheckForm(request.POST).retire)

    def _give(
        self, request: HttpRequest, entity_id: int, verdict: Callable[[int], AffirmResult | RetireResult]
    ) -> HttpResponse:
        try:
            result = verdict(entity_id)
        except HubError as error:
            messages.error(request, sentence(error))
            return redirect(self.url("item", entity_id))
        named = f"#{result.id} “{result.title}”."
        if isinstance(result, AffirmResult):
            messages.success(request, f"Confirmed {named} This cannot be undone.")
            warn_of_redactions(request, result.redacted)
        elif result.kind == StaleKind.DECISION:
            messages.success(request, f"Deprecated {named}")
        else:
            messages.success(request, f"Deleted {named}")
        return redirect(next_page(request) or self.url("changelist"))

    def _show_single(self, request: HttpRequest, item: dict[str, Any] | None) -> HttpResponse:
        if item and item["group"]:
            return redirect(f"{self.url('group', item['group'])}#entry-{item['id']}")
        return self._show(request, item)

    def _show(self, request: HttpRequest, item: dict[str, Any] | None) -> HttpResponse:
        if item:
            request.inbox_key = f"recheck-{item['id']}"  # type: ignore[attr-defined]
        context = {"title": "Inbox", **(_item_context(item) if item else {})}
        return self.page(request, _PAGE, None, **context)


_GROUP_PAGE = "admin/governance/stale_group.html"
_MOST_OF_GROUP = 500


def _group_row(item: dict[str, Any], group: StaleGroup) -> dict[str, Any]:
    context = _item_context(item)
    context["reasons"] = [reason for reason in context["reasons"] if reason["name"] != group.name or _is_lines(reason)]
    return context


# The name of a whole group is its title already
def _is_lines(reason: dict[str, Any]) -> bool:
    return reason["why"] in (Why.CHANGED, Why.GONE)


def _group_patch(group: StaleGroup) -> SafeString | None:
    tree = caller_tree()
    if group.why is Why.DROPPED or tree is None:
        return None
    diff = diff_of_file(tree, group.name, group.ids)
    return patch(diff) if diff else None


def _item_context(item: dict[str, Any]) -> dict[str, Any]:
    is_decision = item["kind"] == StaleKind.DECISION
    if is_decision:
        thing, change_page, rendered = "decision", "decisions_decision_supersede", render(item["text"])
    else:
        thing, change_page = "memory", "memories_memory_edit"
        rendered = render(item["text"], KINDS[item["kind"]].rendering)
    return {
        "item": item,
        "label": _label(item["kind"]),
        "is_decision": is_decision,
        "has_expired": any(reason["why"] == "expired" for reason in item["reasons"]),
        "rendered": rendered,
        "reasons": [{**reason, "at": clock.from_text(reason["since"])} for reason in item["reasons"]],
        "looked_at": clock.from_text(item["looked_at"]),
        "commits": list(map(_commit_row, item["commits"])),
        "thing_url": page_of_entity(thing, item["id"]),
        "change_url": reverse(f"admin:{change_page}", args=[item["id"]]),
    }


def _label(kind: str) -> str:
    return KINDS[kind].label if kind in KINDS else kind.capitalize()


def _commit_row(commit: dict[str, Any]) -> dict[str, Any]:
    row = {**commit, "at": clock.from_text(commit["date"]), "url": page_of_entity("commit", commit["id"])}
    if commit["diff"]:
        row["patch"] = patch(commit["diff"])
    return row
