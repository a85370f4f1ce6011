"""What became of memories, as their lists and pages show it."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from memories.models import Memory, MemoryCitation, MemoryUse
from memories.uses.selectors import uses_of
from memoryhub.core.admin import DefaultFilter

_CITING = 6


class UseFilter(DefaultFilter):
    """Memories that packs told and nobody came back to, or that were of use."""

    title = "use"
    parameter_name = "use"
    options = {"any": "All", "ignored": "Ignored", "used": "Used", "never": "Never given"}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what the choice says."""
        choice = self.chosen()
        if choice == "any":
            return queryset
        if choice == "never":
            return queryset.exclude(id__in=MemoryUse.objects.filter(given__gt=0).values("memory_id"))
        ignored = MemoryUse.objects.ignored().values("memory_id")
        if choice == "ignored":
            return queryset.filter(id__in=ignored)
        return queryset.filter(id__in=MemoryUse.objects.used().values("memory_id"))


def use_shown(memory: Memory) -> dict[str, Any]:
    """Return what became of a memory, and what names it, the latest first."""
    use = uses_of([memory.pk])[memory.pk]
    citing = MemoryCitation.objects.filter(memory_id=memory.pk).order_by("-cited_at", "-stream_id")[:_CITING]
    cited_by = [{"stream": each.stream_id, "label": _label(each.stream_id), "at": each.cited_at} for each in citing]
    return {"use": use, "cited_by": cited_by}


def _label(stream: str) -> str:
    kind, _, name = stream.partition(":")
    return f"{kind} #{name}" if name.isdecimal() else f"{kind} {name}"
