"""Pages that change memories: each one calls one service."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from memories import services
from memories.admin.diff import word_diff
from memories.admin.forms import ChangedMemoryForm, NewMemoryForm, initial_of
from memories.models import Memory
from memories.schemas import MemoryTouch, WriteResult, WriteStatus
from memories.selectors import versions_of
from memoryhub.core.admin import HubModelAdmin
from memoryhub.core.errors import Conflict, Gone, HubError, Invalid, PreconditionFailed

_FORM = "admin/memories/memory/form.html"
_SAID = {
    WriteStatus.CREATED: "Written as #{id}.",
    WriteStatus.UPDATED: "Saved as version {version}.",
    WriteStatus.SEEN: "#{id} has this very text already; it was counted once more.",
    WriteStatus.KEPT: "#{id} stays as it is.",
    WriteStatus.UNCHANGED: "Nothing changed, so there is no new version.",
    WriteStatus.DELETED: "#{id} is deleted. It can be restored at any time.",
    WriteStatus.RESTORED: "#{id} is restored.",
}


class EditingViews(HubModelAdmin):
    """Adding, editing, deleting and restoring."""

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Write a memory."""
        form = NewMemoryForm(request.POST if request.method == "POST" else None)
        command = form.command() if form.is_bound else None
        if command:
            try:
                return self._done(request, services.write_memory(command=command))
            except HubError as error:
                _show(form, error)
        context = {"title": "Write a memory", "form": form, "adding": True}
        return self.page(request, _FORM, None, **context)

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change a memory."""
        memory: Memory = self.find(request, object_id)
        if memory.deleted_at and request.method != "POST":
            messages.warning(request, "This memory is deleted. Restore it, then edit it.")
            return redirect(self.url("change", memory.id))
        form = ChangedMemoryForm(request.POST if request.method == "POST" else None, initial=initial_of(memory))
        command = form.command(memory) if form.is_bound else None
        context: dict[str, Any] = {"title": f"Edit #{memory.id}", "form": form}
        if command:
            try:
                return self._done(request, services.update_memory(command=command))
            except PreconditionFailed:
                memory.refresh_from_db()
                context |= _stale(form, memory)
            except HubError as error:
                _show(form, error)
        return self.page(request, _FORM, memory, **context)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Delete a memory, after a page that says what that means."""
        memory: Memory = self.find(request, object_id)
        if request.method != "POST":
            context = {"title": f"Delete #{memory.id}?"}
            return self.page(request, "admin/memories/memory/delete.html", memory, **context)
        return self._touched(request, memory, services.delete_memory, request.POST.get("reason", ""))

    def restore_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Bring a deleted memory back."""
        return self._touched(request, self.find(request, object_id), services.restore_memory, "")

    def _touched(self, request: HttpRequest, memory: Memory, service: Any, reason: str) -> HttpResponse:
        try:
            return self._done(request, service(command=MemoryTouch(id=memory.id, reason=reason[:1_000])))
        except (Conflict, Gone) as error:
            messages.error(request, sentence(error))
            return redirect(self.url("change", memory.id))

    def _done(self, request: HttpRequest, result: WriteResult) -> HttpResponse:
        messages.success(request, _SAID[result.status].format(id=result.id, version=result.version))
        if result.redacted:
            kinds = ", ".join(result.redacted)
            messages.warning(request, f"Secrets or private text were taken out before anything was kept: {kinds}.")
        return redirect(self.url("change", result.id))


def sentence(error: HubError) -> str:
    """Return an error as a person reads it here, where tools have buttons instead of names."""
    text = error.message.replace("; bring it back with memory_restore", "; restore it first")
    text = text.replace(", or pass if_exists=update or keep", "")
    return f"{text[:1].upper()}{text[1:]}."


def _show(form: Any, error: HubError) -> None:
    if not isinstance(error, Conflict | Gone | Invalid):
        raise error
    form.add_error("title" if isinstance(error, Conflict) else None, sentence(error))


def _stale(form: ChangedMemoryForm, memory: Memory) -> dict[str, Any]:
    """Return what the page shows when another version came first: that version, and what it changed."""
    read = form.cleaned_data["base_version"]
    texts = {version["version"]: version for version in versions_of([memory.id])[memory.id]}
    form.rebase(memory.version)
    before = (texts.get(read) or {}).get("content") or ""
    return {
        "stale": {"read": read, "next": memory.version + 1, "latest": texts[memory.version]},
        "present": memory,
        "diff": word_diff(before, memory.content),
    }
