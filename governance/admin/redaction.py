"""The page of redaction: what to take out, what that would touch, and what was taken out so far."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from governance.admin.redaction_form import RedactionForm
from governance.admin.section import GovernanceAdmin
from governance.models import Redaction
from governance.redaction.growth import last_look
from governance.redaction.schemas import Place, RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memoryhub.core.admin import cells
from memoryhub.core.admin.access import needs
from memoryhub.core.errors import ConfirmationRequired, HubError
from memoryhub.core.permissions import Act

WORD_TO_TYPE = "redact"
_LATEST = 20


@admin.register(Redaction)
class RedactionAdmin(GovernanceAdmin):
    """Looks first, then takes out; each redaction that was made leads to its event."""

    def get_urls(self) -> list[URLPattern]:
        """Add the act itself."""
        act = self.admin_site.admin_view(needs(Act.GOVERN, self.run_view))
        return [path("run/", act, name="governance_redaction_run"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the form, what it would take out, and what was taken out so far."""
        form = RedactionForm(request.POST if request.method == "POST" else None)
        shown = needs(Act.GOVERN, self._previewed)(request, form) if form.is_bound else {}
        return self._page(request, form, **shown)

    def run_view(self, request: HttpRequest) -> HttpResponse:
        """Take out what was looked at, if the word was typed."""
        form = RedactionForm(request.POST or None)
        selection = form.selection() if form.is_bound else None
        if selection is None:
            return redirect(self.url("changelist"))
        if request.POST.get("typed", "").strip().lower() != WORD_TO_TYPE:
            problem = f"Type {WORD_TO_TYPE} to confirm; nothing was changed."
            return self._page(request, form, **self._previewed(request, form), unconfirmed=problem)
        try:
            done = redact(command=RedactionRun(**selection, **_confirmed(request)))
        except ConfirmationRequired:
            changed = "The log has changed since you looked; this is what would go now. Nothing was changed."
            return self._page(request, form, **self._previewed(request, form), unconfirmed=changed)
        except HubError as error:
            return self._page(request, form, problem=error.message)
        _tell(request, done)
        return redirect(self.url("changelist"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the event that tells of it."""
        return redirect("admin:core_rawevent_change", self.find(request, object_id).pk)

    def _previewed(self, request: HttpRequest, form: RedactionForm) -> Any:
        selection = form.selection()
        if selection is None:
            return {}
        try:
            preview = preview_redaction(command=RedactionSelect(**selection))
        except HubError as error:
            return {"problem": f"{error.message[:1].upper()}{error.message[1:]}."}
        return {"preview": preview, "rows": _rows(preview), "word": WORD_TO_TYPE}

    def _page(self, request: HttpRequest, form: RedactionForm, **context: Any) -> HttpResponse:
        latest = Redaction.objects.order_by("-id")[:_LATEST]
        common = {"title": "Redaction", "form": form, "latest": latest, "look": last_look()}
        return self.page(request, "admin/governance/redaction.html", None, **common, **context)


def _confirmed(request: HttpRequest) -> dict[str, str]:
    return {name: request.POST.get(name, "") for name in ("confirm_token", "reason")}


def _rows(preview: RedactionPreview) -> list[dict[str, Any]]:
    return [{"place": place, "before": _marked(place), "after": place.after} for place in preview.places]


def _marked(place: Place) -> SafeString:
    """Return the text with what goes marked."""
    parts, at = [], 0
    for start, end in place.marked:
        parts.append((place.before[at:start], place.before[start:end]))
        at = end
    return format_html("{}{}", format_html_join("", "{}<del>{}</del>", parts), place.before[at:])


def _tell(request: HttpRequest, done: RedactionDone) -> None:
    finds, events = cells.counted(done.finds, "find"), cells.counted(done.events, "event")
    events += f" and {cells.counted(done.spooled, 'event')} in the spool" if done.spooled else ""
    searched = f"{cells.counted(done.searched_files, 'file')} ({done.searched_bytes / 1e6:.1f} MB)"
    searched += f" {'was' if done.searched_files == 1 else 'were'} read byte by byte"
    if not done.left:
        messages.success(request, f"{finds} taken out of {events}. {searched}, and none has any left.")
        return
    messages.success(request, f"{finds} taken out of {events}. {searched}.")
    for kept in done.left:
        messages.warning(request, f"Left in {kept.where}: {kept.why}.")
