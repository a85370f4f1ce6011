"""The checks of an entry on its page, and the button that allows a command."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.contrib import messages
from django.http import HttpRequest

from memories.admin.base import sentence
from memories.validity.checks import EntryCheck, allow_check, is_allowed
from memories.validity.models import CheckState
from memoryhub.core.errors import ConflictError


def shown_checks(entity_id: int, entries: Collection[EntryCheck]) -> list[dict[str, Any]]:
    """Return the checks that an entry carries, and those of a file of tests that prove it, with their results."""
    states = {state.digest: state for state in CheckState.objects.filter(entity_id=entity_id)}
    checks = []
    for entry in entries:
        state = states.pop(entry.check.digest, None)
        has_permission = is_allowed(entry, state)
        checks.append(
            {
                "text": entry.check.text,
                "digest": entry.check.digest,
                "state": state,
                "is_allowed": has_permission,
                "needs_permission": bool(entry.check.command) and not has_permission,
            }
        )
    for state in states.values():
        if state.file and state.outcome:
            checks.append({"text": state.text, "file": state.file, "state": state})
    return checks


def allow_posted(request: HttpRequest, entries: Collection[EntryCheck]) -> None:
    """Allow the command that the person saw, which may have changed since."""
    seen = [entry for entry in entries if entry.check.digest == request.POST.get("digest")]
    if not seen:
        messages.error(request, "The check has changed since you opened this page. Read it, then allow it again.")
        return
    try:
        allow_check(seen[0])
    except ConflictError as error:
        messages.error(request, sentence(error))
    else:
        messages.success(request, "Allowed this command. It runs with “memory-hub memtest --run”.")
