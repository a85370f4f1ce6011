"""The history of one memory: what each version changed, and any two versions beside each other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from django.http import HttpRequest, HttpResponse

from memories.admin.comparing import change, head, history_of, sides
from memories.admin.editing import EditingViews
from memories.models import Memory
from memoryhub.core.errors import NotFound

_DIFFS = 10


class VersionViews(EditingViews):
    """Pages of versions."""

    def versions_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what changed from version to version, newest first, ten to a page."""
        memory: Memory = self.find(request, object_id)
        versions = history_of(memory)
        numbers = [each["version"] for each in versions]
        before = request.GET.get("before", "")
        if before.isdecimal():
            versions = [each for each in versions if each["version"] < int(before)]
        shown = versions[: _DIFFS + 1]
        first = [{**shown[-1], "first": True}] if shown and shown[-1]["version"] == 1 else []
        changes = [change(newer, older) for newer, older in pairwise(shown)] + first
        older = changes[-1]["version"] if changes and not first else None
        context = {"subtitle": "Versions", "changes": changes, "older": older, **_choice(numbers, numbers[1::-1])}
        return self.page(request, "admin/memories/memory/versions.html", memory, **context)

    def compare_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show two versions beside each other; by default the last two."""
        memory: Memory = self.find(request, object_id)
        versions = {each["version"]: each for each in history_of(memory)}
        wanted = [request.GET.get("from", ""), request.GET.get("to", "")]
        chosen = [int(each) if each.isdecimal() else max(memory.version - 1 + at, 1) for at, each in enumerate(wanted)]
        for number in chosen:
            if number not in versions:
                raise NotFound(f"#{memory.id} has no version {number}; it has 1 to {memory.version}")
        pair = sides(versions[chosen[0]], versions[chosen[1]])
        context = {
            "subtitle": "Compare",
            "sides": pair,
            "heads": [head(side.version) for side in pair],
            "labels": [f"Version {number}" for number in chosen],
            "same": chosen[0] == chosen[1],
        }
        numbers = list(versions)
        return self.page(request, "admin/memories/memory/compare.html", memory, **context, **_choice(numbers, chosen))


def _choice(numbers: list[int], chosen: list[int]) -> dict[str, Any]:
    """Return what the form that chooses two versions shows."""
    return {"numbers": numbers, "from_version": chosen[0], "to_version": chosen[-1]}
