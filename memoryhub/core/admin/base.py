"""Read-only base classes of the admin's lists and detail pages, downloads of what a list shows, and permission checks.

Rows are read models, so nothing is saved here. Django's admin log is not used: it is in hub.db, which has no projects,
and an object's history is its events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import url_has_allowed_host_and_scheme

from memoryhub.core.admin.cells import event_title
from memoryhub.core.admin.facets import COUNTED_AT_MOST, DefaultFilter, HubChangeList
from memoryhub.core.errors import NotFound
from memoryhub.core.log.quarantine import quarantine_marks
from memoryhub.core.models import Quarantine, RawEvent
from memoryhub.core.permissions import Act, may, require
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import csv_lines, csv_text

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    _ModelAdmin = admin.ModelAdmin
    _Paginator = Paginator


def needs(act: Act, view: Callable[..., Any]) -> Callable[..., Any]:
    """Require a permission to call a view: ``self.admin_site.admin_view(needs(Act.WRITE, self.settle_view))``.

    The view's first argument is the request: pass a function or a bound method.
    """

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        require(request.user, act)
        response: HttpResponseBase = view(request, *args, **kwargs)
        return response

    return checked


def next_page(request: HttpRequest) -> str:
    """Return the page of this hub that a form leads to with ``next``, or "" if it names none."""
    page: str = request.POST.get("next", "")
    is_of_this_hub = page.startswith("/") and url_has_allowed_host_and_scheme(page, allowed_hosts=None)
    return page if is_of_this_hub else ""


class Rights:
    # Evaluated lazily by templates: {% if may.review %}
    def __init__(self, user: Any) -> None:
        self._user = user

    def __getitem__(self, act: str) -> bool:
        return may(self._user, Act(act))

    def __iter__(self) -> Iterator[str]:
        return (act for act in Act if self[act])


def rights(request: HttpRequest) -> dict[str, Any]:
    # Early error pages have no user: no permissions then.
    user = getattr(request, "user", None)
    return {"may": Rights(user) if user is not None else {}}


class QuarantineFilter(DefaultFilter):
    # Shown only if the store has quarantined items.
    title = "quarantine"
    parameter_name = "quarantine"
    options = {"outside": "Not in quarantine", "inside": "In quarantine", "all": "All"}

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        self._field = model_admin.quarantine_field
        super().__init__(request, params, model, model_admin)

    def conditions_now(self) -> dict[str, Q]:
        inside = Q(**{f"{self._field}__in": Quarantine.objects.values("id")})
        return {"outside": ~inside, "inside": inside}


MAX_HISTORY = 200


class BoundedPaginator(_Paginator):
    # Counting stops at 25,000 rows, so that pages of large stores stay fast.
    @cached_property
    def count(self) -> int:
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]
        return rows.order_by().values("pk")[:COUNTED_AT_MOST].count()


class HubModelAdmin(_ModelAdmin):
    paginator = BoundedPaginator
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    actions: Sequence[Any] | None = ()
    view_on_site = False

    # Singular and plural for counts; default: the model's names
    nouns: tuple[str, str] | None = None
    list_title = ""
    detail_template = ""
    # The field with the id that can be quarantined, if any
    quarantine_field = ""
    # Prefix of the rows' streams, such as ``memory``
    stream_kind = ""
    empty_title = "No entries yet"
    # The next step, if the list is empty
    empty_text = ""

    # Columns of downloads, the number and the title first; none if the list can't be downloaded
    export_fields: tuple[str, ...] = ()

    def get_urls(self) -> list[URLPattern]:
        urls = super().get_urls()
        if not self.export_fields:
            return urls
        name = f"{self.opts.app_label}_{self.opts.model_name}_export"
        return [path("export.<str:form>", self.admin_site.admin_view(self.export_view), name=name), *urls]

    def export_view(self, request: HttpRequest, form: str) -> StreamingHttpResponse:
        """Return all rows that the list shows with the same query, without pages."""
        if form not in FORMATS:
            raise Http404(f"there is no format {form!r}")
        entries = self.get_changelist_instance(request).get_queryset(request).values_list(*self.export_fields)
        rows = lines(form, self.export_fields, entries.iterator(chunk_size=500))
        response = StreamingHttpResponse(rows, content_type=f"{FORMATS[form]}; charset=utf-8")
        name = str(self.opts.verbose_name_plural).replace(" ", "-")
        response["Content-Disposition"] = f'attachment; filename="{current_store().name or "global"}-{name}.{form}"'
        return response

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Act.VIEW)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return may(request.user, Act.VIEW)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        filters = list(super().get_list_filter(request))
        if self.quarantine_field:
            filters.append(QuarantineFilter)
        return filters

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return HubChangeList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "POST":
            require(request.user, Act.WRITE)
        title = self.list_title or str(self.opts.verbose_name_plural).capitalize()
        formats = (("csv", "CSV"), ("json", "JSON"), ("md", "Markdown"))
        context = {
            "export_formats": formats,
            "empty_title": self.empty_title,
            "empty_text": self.empty_text,
            **(extra_context or {}),
        }
        response = super().changelist_view(request, context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            response.context_data["title"] = title
        return response

    def find(self, request: HttpRequest, object_id: str) -> Any:
        item = self.get_object(request, unquote(object_id))
        if item is None:
            noun = self.nouns[0] if self.nouns else self.opts.verbose_name
            raise NotFound(f"there is no {noun} #{object_id} in this project")
        return item

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        item = self.find(request, object_id)
        return self.page(request, self.detail_template, item, **self.detail(request, item), **(extra_context or {}))

    def detail(self, request: HttpRequest, item: Any) -> dict[str, Any]:
        # Additional context of the detail page
        return {}

    def stream_of(self, item: Any) -> str:
        return f"{self.stream_kind}:{item.pk}"

    def stream_url(self, tail: str) -> str:
        return self.url("change", tail)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        item = self.find(request, object_id)
        events = history(self.stream_of(item))
        return self.page(request, "admin/object_history.html", item, subtitle="History", events=events)

    def page(self, request: HttpRequest, template: str, item: Any, /, **context: Any) -> TemplateResponse:
        common = {"opts": self.opts, "original": item, "title": str(item), "subtitle": None}
        if self.quarantine_field and item is not None:
            thing = getattr(item, self.quarantine_field)
            common["quarantine"] = quarantine_marks([thing]).get(thing, "")
        if self.stream_kind and item is not None:
            common["stream"] = self.stream_of(item)
        return TemplateResponse(request, template, {**self.admin_site.each_context(request), **common, **context})

    def url(self, name: str, *arguments: Any) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}", args=arguments)


def page_of_entity(entity_type: str, entity_id: int) -> str:
    """Return the address of an entity's page; of its event's, if the type has no pages."""
    for model_admin in admin.site._registry.values():
        if entity_type and entity_type == getattr(model_admin, "stream_kind", ""):
            return model_admin.url("change", entity_id)  # type: ignore[attr-defined, no-any-return]
    return reverse("admin:core_rawevent_change", args=[entity_id])


def history(stream: str) -> list[RawEvent]:
    """Return the last events of a stream, newest first, with their titles as ``about``."""
    return titled(RawEvent.objects.filter(stream_id=stream).order_by("-stream_seq")[:MAX_HISTORY])


def titled(events: QuerySet[RawEvent]) -> list[RawEvent]:
    """Add each event's title as ``about``."""
    titled_events = list(events)
    for event in titled_events:
        event.about = event_title(event.payload_json)  # type: ignore[attr-defined]
    return titled_events


FORMATS = {"csv": "text/csv", "json": "application/json", "md": "text/markdown"}
Rows = Iterable[Sequence[Any]]


def lines(form: str, names: Sequence[str], rows: Rows) -> Iterator[str]:
    """Yield the rows in a format of ``FORMATS``; ``names`` are those of the columns."""
    return {"csv": csv_lines, "json": _json_lines, "md": _markdown_sections}[form](names, rows)


def _json_lines(names: Sequence[str], rows: Rows) -> Iterator[str]:
    separator = "[\n"
    for row in rows:
        item = dict(zip(names, row, strict=True))
        yield separator + json.dumps(item, cls=DjangoJSONEncoder, ensure_ascii=False)
        separator = ",\n"
    yield "\n]\n" if separator.startswith(",") else "[]\n"


# The number and the first text are the heading; texts of several lines follow the other fields
def _markdown_sections(names: Sequence[str], rows: Rows) -> Iterator[str]:
    for row in rows:
        number, title, *texts = map(csv_text, row)
        details = list(zip(names[2:], texts, strict=True))
        fields = "\n".join(f"- {name}: {text}" for name, text in details if text and "\n" not in text)
        sections = [f"### {name}\n\n{text}" for name, text in details if "\n" in text]
        yield "\n\n".join([f"## #{number} {' '.join(title.split())}", fields, *sections]) + "\n\n"
