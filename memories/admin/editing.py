"""Pages that change one memory: each one calls one service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from memories import services
from memories.admin.answers import done, refused, show_error
from memories.admin.comparing import change, history_of
from memories.admin.forms import ChangedMemoryForm, initial_of
from memories.admin.lists import FORM, MemoryListAdmin, offered
from memories.models import Memory, MemoryKind
from memories.schemas import MemoryDelete, MemoryRestore, MemoryTouch, MemoryUpdate, WriteResult
from memoryhub.core.errors import (
    ConfirmationRequired,
    Conflict,
    Gone,
    HubError,
    Invalid,
    NotFound,
    PreconditionFailed,
)
from memoryhub.core.permissions import Act, require

_ERASE = "admin/memories/memory/erase.html"


class EditingViews(MemoryListAdmin):
    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        if memory.deleted_at and request.method != "POST":
            messages.warning(request, "This memory is deleted. Restore it before you edit it.")
            return redirect(self.url("change", memory.id))
        kind = MemoryKind(memory.kind)
        form = ChangedMemoryForm(kind, request.POST if request.method == "POST" else None, initial=initial_of(memory))
        command = form.command(memory) if form.is_bound else None
        context: dict[str, Any] = {"title": f"Edit #{memory.id}", "form": form}
        if command:
            try:
                return done(request, services.update_memory(command=command))
            except PreconditionFailed:
                memory.refresh_from_db()
                context |= _stale(form, memory)
            except HubError as error:
                show_error(form, error)
        return self.page(request, FORM, memory, **context, **offered(kind))

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        require(request.user, Act.WRITE)
        memory: Memory = self.find(request, object_id)
        if request.method != "POST":
            context = {"title": f"Delete #{memory.id}?"}
            return self.page(request, "admin/memories/memory/delete.html", memory, **context)
        command = MemoryTouch(id=memory.id, reason=request.POST.get("reason", "")[:1_000])
        return self._changed(request, memory, lambda: services.delete_memory(command=command))

    def restore_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        return self._changed(request, memory, lambda: services.restore_memory(command=MemoryTouch(id=memory.id)))

    def promote_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        command = MemoryUpdate(id=memory.id, promote=True, change_reason="promoted to the project")
        message = "Promoted to the project, as version {version}."
        return self._changed(request, memory, lambda: services.update_memory(command=command), message)

    def again_view(self, request: HttpRequest, object_id: str, version: int) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        command = MemoryRestore(id=memory.id, version=version)
        message = f"Restored version {version}, as version {{version}}."
        return self._changed(request, memory, lambda: services.restore_memory(command=command), message)

    def erase_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        problem = ""
        typed = request.POST.get("number", "").strip().removeprefix("#")
        token = request.POST.get("confirm_token", "") if request.method == "POST" and typed == str(memory.id) else None
        if request.method == "POST" and token is None:
            problem = f"Type {memory.id}, the number of this memory, to confirm."
        try:
            reason = request.POST.get("reason", "")[:1_000]
            command = MemoryDelete(id=memory.id, permanent=True, confirm_token=token and token[:64], reason=reason)
            result = services.delete_memory(command=command)
        except ConfirmationRequired as error:
            if token is not None:
                problem = "The memory has changed since you opened this page. Review it, then confirm again."
            context = {"title": f"Delete #{memory.id} permanently?", "token": error.data["confirm_token"]}
            return self.page(request, _ERASE, memory, **context, problem=problem, typed=typed)
        except PreconditionFailed:
            messages.error(request, "Delete the memory first. Only deleted memories can be deleted permanently.")
            return redirect(self.url("change", memory.id))
        messages.success(request, f"Deleted #{result.id} permanently.")
        return redirect(self.url("changelist"))

    def _changed(
        self, request: HttpRequest, memory: Memory, change: Callable[[], WriteResult], message: str = ""
    ) -> HttpResponse:
        try:
            result = change()
        except (Conflict, Gone, Invalid, NotFound) as error:
            return refused(request, error, memory.id)
        is_new = result.version != memory.version
        return done(request, result, message.format(version=result.version) if is_new else "")


def _stale(form: ChangedMemoryForm, memory: Memory) -> dict[str, Any]:
    read = form.cleaned_data["base_version"]
    versions = {version["version"]: version for version in history_of(memory)}
    latest = versions[memory.version]
    form.rebase(memory.version)
    return {
        "stale": {"read": read, "next": memory.version + 1, "latest": latest},
        "current": memory,
        "changed": change(latest, versions.get(read, latest)),
    }
