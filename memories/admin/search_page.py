"""The search page: the answer that an agent gets, and why each result has its rank."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django_q.models import Task
from pydantic import ValidationError

from memories.admin.base import SectionAdmin, sentence
from memories.admin.listing import MAX_QUERY, mark_rows, marked_excerpt
from memories.events import filled
from memories.models import EmbeddingModel, MemoryKind, MemoryScope, SearchDocument, Vector
from memories.present import reference, warnings
from memories.schemas import MemorySearch, SearchSourceName
from memories.scopes import own_scope
from memories.search.index import has_full_text, index_problem
from memories.tools import search
from memoryhub.core import log
from memoryhub.core.admin import cells, page_of_entity
from memoryhub.core.errors import HubError, Invalid, NotFound
from memoryhub.core.kinds import KINDS
from memoryhub.core.models import ProjectionOffset
from memoryhub.core.paging import ABSENT, SEARCH_MODES, estimate_tokens
from memoryhub.core.stores.dialect import begins_with
from memoryhub.core.validation import explain_faults

_SOURCES = {
    SearchSourceName.MEMORY: "Memories",
    SearchSourceName.DECISION: "Decisions",
    SearchSourceName.COMMIT: "Commits",
    SearchSourceName.SESSION: "Sessions",
    SearchSourceName.MESSAGE: "Messages",
    SearchSourceName.COMMAND: "Failed commands",
}
_DAY = forms.DateInput(attrs={"type": "date"})


def _choices(all_label: str, labels: dict[Any, str]) -> list[tuple[str, str]]:
    return [("", all_label), *((value.value, label) for value, label in labels.items())]


class SearchForm(forms.Form):
    query = forms.CharField(
        required=False,
        label="Question",
        widget=forms.TextInput(
            attrs={
                "type": "search",
                "maxlength": MAX_QUERY,
                "placeholder": "Search in your own words, as an agent would",
            }
        ),
    )
    source = forms.ChoiceField(required=False, label="In", choices=_choices("Everything", _SOURCES))
    kind = forms.ChoiceField(
        required=False, choices=_choices("Any kind", {kind: str(kind.label) for kind in MemoryKind})
    )
    type = forms.CharField(required=False, max_length=64)
    scope = forms.ChoiceField(
        required=False, choices=_choices("All scopes", {scope: str(scope.label) for scope in MemoryScope})
    )
    tags = forms.CharField(required=False, help_text="Separated by commas.")
    session_id = forms.CharField(required=False, label="Session", max_length=200)
    since = forms.DateField(required=False, widget=_DAY)
    until = forms.DateField(required=False, widget=_DAY)
    limit = forms.IntegerField(required=False, label="Results", min_value=1, max_value=100)
    max_tokens = forms.IntegerField(required=False, label="Token budget", min_value=50, max_value=100_000)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        self.fields["limit"].widget.attrs["placeholder"] = str(MemorySearch.model_fields["limit"].default)
        self.fields["max_tokens"].widget.attrs["placeholder"] = "none"

    @property
    def filters(self) -> list[Any]:
        return [self[name] for name in self.fields if name != "query"]

    @property
    def filtered(self) -> bool:
        return any(self.data.get(name) for name in self.fields if name != "query")

    def command(self) -> MemorySearch | None:
        """Return the command, or None if there is no query or the form has errors."""
        if not self.is_valid() or not self.cleaned_data["query"].strip():
            return None
        typed = self.cleaned_data
        tags = [tag.strip() for tag in typed.pop("tags").split(",") if tag.strip()]
        sources = list(filter(None, [typed.pop("source")]))
        try:
            return MemorySearch(**filled(**typed), tags=tags, sources=sources)
        except ValidationError as error:
            self.add_error(None, f"{explain_faults(error.errors())}.")
            return None


_JOBS = {"embed texts": "texts embedded", "count uses": "uses counted"}
_PLURALS = {"memory": "memories"}
_CURSOR = "embeddings-"


def index_health() -> dict[str, Any]:
    """Return the state of the index, with a fixed number of queries."""
    counted = dict(SearchDocument.objects.values_list("source").annotate(documents=Count("pk")).order_by("-documents"))
    latest: dict[str, Task] = {}
    for task in Task.objects.filter(group__in=_JOBS).order_by("-stopped")[:20]:
        latest.setdefault(task.group, task)
    ended = [(label, latest[name]) for name, label in _JOBS.items() if name in latest]
    by_source = [cells.counted(count, source, _PLURALS.get(source, "")) for source, count in counted.items()]
    return {
        "documents": sum(counted.values()),
        "by_source": by_source,
        "full_text": has_full_text(),
        "problem": index_problem(),
        "models": _models(sum(counted.values())),
        "jobs": [{"label": label, "at": task.stopped, "success": task.success} for label, task in ended],
    }


def _models(documents: int) -> list[dict[str, Any]]:
    models = list(EmbeddingModel.objects.order_by("id"))
    if not models:
        return []
    vectors = dict(Vector.objects.values_list("model_id").annotate(count=Count("document_id")))
    cursors = ProjectionOffset.objects.filter(begins_with("projector", _CURSOR))
    followed = dict(cursors.values_list("projector", "position"))
    head = log.head()[0]
    rows = []
    for model in models:
        rows.append(
            {
                "name": model.name,
                "version": model.version,
                "dimensions": model.dimensions,
                "complete": model.complete,
                "embedded": vectors.get(model.pk, 0),
                "documents": documents,
                "behind": max(0, head - followed.get(f"{_CURSOR}{model.pk}", 0)),
            }
        )
    return rows


_FACTOR = re.compile(r"(?P<name>.+) ×(?P<factor>[\d.]+)")
_BAR = 72


@admin.register(SearchDocument)
class SearchAdmin(SectionAdmin):
    """Searches as an agent does. Rows of the index have no pages of their own."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        form = SearchForm(request.GET)
        command = form.command()
        context = {"title": "Search", "form": form, "health": index_health()}
        return self.page(request, "admin/memories/search.html", None, **context, **_answered(command))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        document = self.find(request, object_id)
        return redirect(page_of_entity(document.source, document.pk))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return self.change_view(request, object_id)


def _answered(command: MemorySearch | None) -> dict[str, Any]:
    if command is None:
        return {}
    try:
        answer = search(command)
    except (Invalid, NotFound) as error:
        return {"problem": sentence(error)}
    except HubError as error:
        return {"problem": error.message}
    data: dict[str, Any] = answer.data
    meta = data["meta"]
    return {
        "answer": answer.text,
        "tokens": estimate_tokens(answer.text),
        "meta": meta,
        "absent": ABSENT if meta["absent"] else "",
        "mode": SEARCH_MODES[meta["mode"]],
        "hits": shown_hits(data["results"]),
    }


def _unsaid_types(hit: dict[str, Any]) -> tuple[str, str]:
    """Return the types that the badge of a hit says already."""
    kind = KINDS.get(hit.get("kind", ""))
    return hit["source"], kind.default_type if kind else ""


def shown_hits(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    best = max((hit["score"] for hit in results), default=0.0) or 1.0
    # Results of wider scopes have no pages here
    scopes = (MemoryScope.PROJECT, MemoryScope.SESSION, own_scope())
    rows = []
    for hit in results:
        rows.append(
            {
                **hit,
                "reference": reference(hit),
                "type_shown": "" if hit["type"] in _unsaid_types(hit) else hit["type"],
                "url": page_of_entity(hit["source"], hit["id"]) if hit["scope"] in scopes else "",
                "width": round(max(hit["score"], 0) / best * _BAR, 1),
                "reasons": reasons(hit.get("why", "")),
                "warnings": warnings({**hit, "marks": []}).strip(" ()"),
                "marks": mark_rows(hit.get("marks", [])),
                "excerpt": marked_excerpt(hit["snippet"], hit.get("matches", [])),
            }
        )
    return rows


def reasons(why: str) -> SafeString:
    """Return the words and factors of a rank as badges.

    Args:
        why: such as ``coffee, machine; session ×1.8``: the words, then the factors.
    """
    badges = []
    for part in filter(None, why.split("; ")):
        factor = _FACTOR.fullmatch(part)
        if factor:
            badges.append((cells.badge("raised" if float(factor["factor"]) >= 1 else "lowered", part),))
        else:
            badges.append((format_html('<span class="reason-words">{}</span>', part),))
    return format_html_join(" ", "{}", badges)
