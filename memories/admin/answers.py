"""What a person is told of a write, and where it leads."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from memories.schemas import WriteResult, WriteStatus
from memoryhub.core.errors import Conflict, Gone, HubError, Invalid

_SAID = {
    WriteStatus.CREATED: "Written as #{id}.",
    WriteStatus.UPDATED: "Saved as version {version}.",
    WriteStatus.SEEN: "#{id} has this very text already; it was counted once more.",
    WriteStatus.KEPT: "#{id} stays as it is.",
    WriteStatus.UNCHANGED: "Nothing changed, so there is no new version.",
    WriteStatus.DELETED: "#{id} is deleted. It can be restored at any time.",
    WriteStatus.RESTORED: "#{id} is restored.",
    WriteStatus.ERASED: "#{id} is erased for good.",
}
_TOOL_NAMES = {
    "; bring it back with memory_restore": "; restore it first",
    ", or pass if_exists=update or keep": "",
    "; to copy it elsewhere, use memory_write": "",
}


def done(request: HttpRequest, result: WriteResult, said: str = "") -> HttpResponse:
    """Say what a write did, and lead to the memory."""
    messages.success(request, said or _SAID[result.status].format(id=result.id, version=result.version))
    warn_of_redactions(request, result.redacted)
    return redirect("admin:memories_memory_change", result.id)


def warn_of_redactions(request: HttpRequest, redacted: list[str]) -> None:
    """Say what was taken out of what was typed, if anything was."""
    if redacted:
        kinds = ", ".join(redacted)
        messages.warning(request, f"Secrets or private text were taken out before anything was kept: {kinds}.")


def refused(request: HttpRequest, error: HubError, memory_id: int) -> HttpResponse:
    """Say why nothing was done, and lead to the memory."""
    messages.error(request, sentence(error))
    return redirect("admin:memories_memory_change", memory_id)


def sentence(error: HubError) -> str:
    """Return an error as a person reads it here, where tools have buttons instead of names."""
    text = error.message
    for name, instead in _TOOL_NAMES.items():
        text = text.replace(name, instead)
    return f"{text[:1].upper()}{text[1:]}."


def show_error(form: Any, error: HubError) -> None:
    """Show in a form what a service refused; errors that are no one's input go on."""
    if not isinstance(error, Conflict | Gone | Invalid):
        raise error
    form.add_error("title" if isinstance(error, Conflict) else None, sentence(error))
