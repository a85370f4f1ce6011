"""The list of memories: its filters, and search by relevance."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import ORDER_VAR
from django.db.models import Case, Count, F, IntegerField, QuerySet, Value, When
from django.http import HttpRequest

from memories import selectors
from memories.models import Memory, MemoryTag, MemoryType
from memories.schemas import MemorySearch, SearchSourceName
from memories.search.text import terms
from memoryhub.core.admin import DefaultFilter, HubChangeList, SinceFilter, ValueFilter
from sessions_app.models import Session

_BEST = 100
_OFFERED = 20
_MAX_QUERY = 2_000


class TypeFilter(ValueFilter):
    """Memories of one type."""

    title = "type"
    parameter_name = "type"
    field = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return all types."""
        return [(str(value), str(label)) for value, label in MemoryType.choices]


class TagFilter(SimpleListFilter):
    """Memories with one tag; the most used ones are offered."""

    title = "tag"
    parameter_name = "tag"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the 20 tags on most memories, and the one in use."""
        counted = MemoryTag.objects.values("tag").annotate(memories=Count("memory_id")).order_by("-memories", "tag")
        tags = [row["tag"] for row in counted[:_OFFERED]]
        used = request.GET.get("tag")
        return [(tag, tag) for tag in ([used] if used and used not in tags else []) + tags]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep memories with the tag."""
        tag = self.value()
        return queryset.filter(id__in=MemoryTag.objects.filter(tag=tag).values("memory_id")) if tag else queryset


class SessionFilter(ValueFilter):
    """Memories that were written in one session; the latest ones are offered."""

    title = "session"
    parameter_name = "session"
    field = "session_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the latest sessions, and the one in use."""
        latest = Session.objects.order_by("-id").values_list("session_id", "purpose")[:8]
        offered = {name: purpose[:40] or name for name, purpose in latest}
        used = dict(super().lookups(request, model_admin))
        return list({**used, **offered}.items())


class UpdatedFilter(SinceFilter):
    """Memories that changed in the past days."""

    title = "last change"
    field = "updated_at"


class DeletedFilter(DefaultFilter):
    """Deleted memories are hidden until they are asked for."""

    title = "state"
    parameter_name = "state"
    options = {"kept": "Kept", "deleted": "Deleted", "all": "All"}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what the choice says."""
        if self.chosen() == "all":
            return queryset
        return queryset.filter(deleted_at__isnull=self.chosen() == "kept")


class MemoryChangeList(HubChangeList):
    """Shows beside a hit the words that it was found by."""

    @property
    def counted(self) -> str:
        """The number of results as text; a search keeps the best ones."""
        return f"The {_BEST} best memories" if self.query and self.result_count == _BEST else super().counted

    def get_ordering_field_columns(self) -> dict[int, Any]:
        """Mark no column while the order is that of relevance."""
        columns = super().get_ordering_field_columns()
        return columns if ORDER_VAR in self.params or not self.query else {}

    def get_results(self, request: HttpRequest) -> None:
        """Attach the snippets."""
        super().get_results(request)
        snippets: dict[int, str] = getattr(request, "memory_snippets", {})
        memories = list(self.result_list)
        for memory in memories:
            memory.snippet = snippets.get(memory.id, "")
        self.result_list = memories


def search(request: HttpRequest, queryset: QuerySet[Any], question: str) -> QuerySet[Any]:
    """Keep the 100 best answers to a question, best first, and then deleted memories that hold its words.

    The index holds no deleted memory, so these are looked for in their text, and only where the list shows them.
    """
    found = selectors.search(command=_command(request, question), whole_store=True).results
    request.memory_snippets = {hit["id"]: hit["snippet"] for hit in found}  # type: ignore[attr-defined]
    ids = [hit["id"] for hit in found]
    matching: QuerySet[Any] = queryset.filter(id__in=ids)
    if request.GET.get("state") in ("deleted", "all"):
        matching = matching | _deleted_with(queryset, question)
    if ORDER_VAR in request.GET:
        return matching
    ranked: QuerySet[Any] = matching.annotate(place=_places(ids)).order_by("place", F("updated_at").desc(), "-id")
    return ranked


def _command(request: HttpRequest, question: str) -> MemorySearch:
    chosen = request.GET.get("type")
    tag = request.GET.get("tag", "").strip()
    return MemorySearch(
        query=question[:_MAX_QUERY],
        sources=[SearchSourceName.MEMORY],
        limit=_BEST,
        type=chosen if chosen in MemoryType.values else None,
        tags=[tag[:64]] if tag else [],
        session_id=request.GET.get("session", "")[:200] or None,
    )


def _deleted_with(queryset: QuerySet[Memory], question: str) -> QuerySet[Memory]:
    deleted = queryset.filter(deleted_at__isnull=False)
    for word in terms(question):
        deleted = deleted.filter(title__icontains=word) | deleted.filter(content__icontains=word)
    return deleted


def _places(ids: list[int]) -> Case:
    whens = [When(id=each, then=Value(place)) for place, each in enumerate(ids)]
    return Case(*whens, default=Value(len(ids)), output_field=IntegerField())
