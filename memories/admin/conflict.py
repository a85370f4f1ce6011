"""The admin of conflicts: both versions side by side, and the form that resolves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from pydantic import ValidationError

from memories import services
from memories.admin.base import SectionAdmin, sentence
from memories.admin.comparing import head, history_of, sides, version_in
from memories.diff import merge_texts
from memories.models import Conflict, Resolution
from memories.present import clause
from memories.schemas import ConflictResolve
from memoryhub.core.admin import DefaultFilter, cells, needs, next_page
from memoryhub.core.errors import ConflictError as Refused
from memoryhub.core.errors import Gone, Invalid
from memoryhub.core.permissions import Act
from memoryhub.core.text import as_sentence
from memoryhub.core.validation import explain

_PAGE = "admin/memories/conflict/detail.html"


class StateFilter(DefaultFilter):
    title = "state"
    parameter_name = "state"
    options = {"all": "All", "open": "Unresolved", "settled": "Resolved"}
    conditions = {"open": Q(resolved_at__isnull=True), "settled": Q(resolved_at__isnull=False)}


class ResolveForm(forms.Form):
    resolution = forms.ChoiceField(choices=Resolution.choices, required=False)
    content = forms.CharField(required=False, strip=False)
    title = forms.CharField(required=False)
    split_title = forms.CharField(required=False)
    reason = forms.CharField(required=False)

    def command(self, conflict_id: int) -> ConflictResolve:
        """Return the command, with the fields of the chosen resolution only.

        Raises:
            ValidationError: a value is invalid.
        """
        self.is_valid()
        typed = self.cleaned_data
        chosen = typed.get("resolution", "")
        content, title = None, ""
        if chosen == Resolution.MERGE:
            content, title = typed["content"].replace("\r\n", "\n"), typed["title"]
        elif chosen == Resolution.BOTH:
            title = typed["split_title"]
        return ConflictResolve(
            id=conflict_id, resolution=chosen, content=content, title=title or None, reason=typed["reason"]
        )


def _resolutions(conflict: Conflict) -> list[dict[str, str]]:
    a, b = conflict.version_a, conflict.version_b
    help_texts = {
        Resolution.KEEP_A: f"Version {a} becomes the current text.",
        Resolution.KEEP_B: f"Version {b} becomes the current text.",
        Resolution.MERGE: "You write a new version from both texts.",
        Resolution.BOTH: f"The current text stays, and version {a} becomes a separate memory.",
    }
    return [{"value": way.value, "name": str(way.label), "help": text} for way, text in help_texts.items()]


@admin.register(Conflict)
class ConflictAdmin(SectionAdmin):
    list_display = ("number", "about", "state", "versions", "detected", "settled")
    list_display_links = ("number",)
    list_filter = (StateFilter,)
    list_select_related = ("memory",)
    sortable_by = ()
    detail_template = _PAGE
    quarantine_field = "memory_id"
    ordering = (F("resolved_at").desc(nulls_first=True), "-id")
    empty_title = "No conflicts"
    empty_text = "When two clients change the same version of a memory, both versions are kept and you resolve it here."

    def get_urls(self) -> list[URLPattern]:
        view: Callable[..., HttpResponse] = self.admin_site.admin_view(needs(Act.WRITE, self.settle_view))
        return [path("<path:object_id>/settle/", view, name="memories_conflict_settle"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("memory__content", "memory__resource_links")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        if not object_id.isdecimal() or len(object_id) > 16:
            return None
        return Conflict.objects.select_related("memory").filter(id=int(object_id)).first()

    def detail(self, request: HttpRequest, conflict: Conflict) -> dict[str, Any]:
        request.inbox_key = f"conflict-{conflict.pk}"  # type: ignore[attr-defined]
        history = history_of(conflict.memory)
        memory = conflict.memory
        first = version_in(history, conflict.version_a, memory)
        second = version_in(history, conflict.version_b, memory)
        current = version_in(history, memory.version, memory)
        base = next((version for version in history if version["version"] == second["base_version"]), None)
        draft = merge_texts((base or {}).get("content") or "", first["content"] or "", second["content"] or "")
        return {
            "title": memory.title,
            "sides": sides(first, second),
            "heads": (head(first), head(second)),
            "base": base,
            "base_head": head(base) if base else "",
            "draft": draft,
            "typed": {"resolution": "", "content": draft, "title": memory.title, "split_title": "", "reason": ""},
            "split_title": f"{(first['title'] or '')[:180]} (version {conflict.version_a} of #{conflict.memory_id})",
            "current": current,
            "labels": (f"Version {conflict.version_a} (earlier)", f"Version {conflict.version_b} (later)"),
            "draft_rows": min(max(draft.count("\n") + 3, 6), 24),
            "resolutions": _resolutions(conflict),
        }

    def settle_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        conflict: Conflict = self.find(request, object_id)
        if request.method != "POST":
            return redirect(self.url("change", conflict.pk))
        form = ResolveForm(request.POST)
        try:
            result = services.resolve_conflict(command=form.command(conflict.pk))
        except ValidationError as error:
            problem = explain(error) if form["resolution"].value() else "choose one of the four resolutions"
            return self._show_problem(request, conflict, form, as_sentence(problem))
        except (Refused, Gone, Invalid) as refusal:
            return self._show_problem(request, conflict, form, sentence(refusal))
        split = clause(" The earlier version is now #", result.split_id, ".")
        messages.success(request, f"Resolved. Version {result.version} is current.{split}")
        return redirect(next_page(request) or self.url("change", conflict.pk))

    def _show_problem(self, request: HttpRequest, conflict: Conflict, form: ResolveForm, problem: str) -> HttpResponse:
        typed = {name: form[name].value() or "" for name in form.fields}
        context = {**self.detail(request, conflict), "typed": typed, "problem": problem}
        return self.page(request, _PAGE, conflict, **context)

    @admin.display(description="#", ordering="id")
    def number(self, conflict: Conflict) -> SafeString:
        return cells.code(f"#{conflict.id}")

    @admin.display(description="memory")
    def about(self, conflict: Conflict) -> SafeString:
        link = cells.link(self.url("change", conflict.id), conflict.memory.title, "title")
        reason = format_html('<span class="snippet">{}</span>', conflict.reason) if conflict.reason else ""
        return format_html("{}{}", link, reason)

    @admin.display(description="state")
    def state(self, conflict: Conflict) -> SafeString:
        return cells.badge("settled", "Resolved") if conflict.resolved_at else cells.badge("conflict", "Unresolved")

    @admin.display(description="versions")
    def versions(self, conflict: Conflict) -> SafeString:
        memory = reverse("admin:memories_memory_change", args=[conflict.memory_id])
        return format_html(
            'v{} and v{} of <a href="{}">#{}</a>', conflict.version_a, conflict.version_b, memory, conflict.memory_id
        )

    @admin.display(description="detected", ordering="detected_at")
    def detected(self, conflict: Conflict) -> SafeString:
        return cells.moment(conflict.detected_at)

    @admin.display(description="resolved", ordering="resolved_at")
    def settled(self, conflict: Conflict) -> SafeString:
        if not conflict.resolved_at:
            return cells.NONE
        resolution = Resolution(conflict.resolution).label
        return format_html('{}<span class="under">by {}</span>', resolution, conflict.resolved_by)
