from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from django.contrib import admin
from django.db.models import Max, Q, QuerySet
from django.db.models.functions import Substr
from django.http import HttpRequest
from django.utils.safestring import SafeString

from memoryhub.core.admin import cells
from memoryhub.core.admin.base import BoundedPaginator, HubModelAdmin
from memoryhub.core.admin.facets import ValueFilter, value_filter
from memoryhub.core.events.event_types import event_types, names_where
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.dialect import begins_with
from memoryhub.core.text import shortened


class LogPaginator(BoundedPaginator):
    # Positions have no gaps, so the last one is the count of the whole log.
    @cached_property
    def count(self) -> int:
        rows: QuerySet[RawEvent] = self.object_list  # type: ignore[assignment]
        if rows.query.where:
            return int(super().count)
        return int(rows.order_by().aggregate(last=Max("position"))["last"] or 0)


class GroupFilter(ValueFilter):
    title = "group"
    parameter_name = "group"
    field = "event_type"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        self.offered = list(dict.fromkeys((type_.group.name, type_.group.label) for type_ in event_types()))
        self._groups = {type_.name: (type_.group.name,) for type_ in event_types()}

    def values_of(self, key: Any) -> Collection[str]:
        return self._groups.get(key, ())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.values:
            return queryset
        return queryset.filter(event_type__in=names_where(lambda type_: type_.group.name in self.values))


class EventTypeFilter(ValueFilter):
    title = "type"
    parameter_name = "type"
    field = "event_type"

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        names = {type_.name: type_.label for type_ in event_types()}
        return {value: names.get(value, value) for value in values}


class DayFilter(ValueFilter):
    title = "day (UTC)"
    parameter_name = "day"

    def key(self) -> Any:
        return Substr("occurred_at", 1, len("2026-01-01"))

    def order(self, counts: Mapping[str, int]) -> list[str]:
        return sorted(counts, reverse=True)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.values:
            return queryset
        days = Q(pk__in=())
        for value in self.values:
            with suppress(ValueError):  # not a date
                day = date.fromisoformat(value)
                days |= Q(occurred_at__gte=str(day), occurred_at__lt=str(day + timedelta(1)))
        return queryset.filter(days)


class ActorFilter(ValueFilter):
    """Filter by actor; ``ann/`` is all of a person's clients."""

    title = parameter_name = field = "actor"

    def values_of(self, key: Any) -> Collection[str]:
        person, client = cells.split_actor(str(key))
        return (f"{person}/", str(key)) if client else super().values_of(key)

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        return {value: f"{value[:-1]}, all clients" if value.endswith("/") else value for value in values}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.values:
            return queryset
        actors = Q(actor__in=self.values)
        for value in self.values:
            if value.endswith("/"):
                actors |= begins_with("actor", value)
        return queryset.filter(actors)


SourceFilter = value_filter("source")
SessionFilter = value_filter("session", field="session_id", wide=True)
StreamFilter = value_filter("stream", field="stream_id", listed=False)


@admin.register(RawEvent)
class RawEventAdmin(HubModelAdmin):
    list_display = ("number", "time", "type_badge", "stream", "made_by", "source_badge", "session")
    list_display_links = ("number",)
    export_fields = (
        "position",
        "event_type",
        "stream_id",
        "occurred_at",
        "actor",
        "source",
        "session_id",
        "turn_id",
        "payload_json",
    )
    list_filter = (GroupFilter, EventTypeFilter, SourceFilter, ActorFilter, DayFilter, SessionFilter, StreamFilter)
    ordering = ("-position",)
    paginator = LogPaginator
    sortable_by = ("number",)
    change_list_template = "admin/core/rawevent/change_list.html"
    detail_template = "admin/core/rawevent/detail.html"
    list_title = "Log"
    empty_title = "No events yet"
    empty_text = "Every write appends an event. Connect an agent over MCP, or write the first memory."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # Lists don't show payloads, which may be large.
        events = super().get_queryset(request)
        url_name = request.resolver_match and request.resolver_match.url_name
        return events.defer("payload_json") if url_name == "core_rawevent_changelist" else events

    @admin.display(description="#", ordering="position")
    def number(self, event: RawEvent) -> SafeString:
        return cells.code(f"#{event.position}")

    @admin.display(description="time")
    def time(self, event: RawEvent) -> SafeString:
        return cells.moment(event.occurred_at)

    @admin.display(description="type")
    def type_badge(self, event: RawEvent) -> SafeString:
        return cells.event_badge(event.event_type)

    @admin.display(description="stream")
    def stream(self, event: RawEvent) -> SafeString:
        return cells.code(shortened(event.stream_id, 24))

    @admin.display(description="actor")
    def made_by(self, event: RawEvent) -> SafeString | str:
        return cells.actor(event.actor)

    @admin.display(description="source")
    def source_badge(self, event: RawEvent) -> SafeString:
        return cells.badge("source", event.source)

    @admin.display(description="session")
    def session(self, event: RawEvent) -> SafeString:
        return cells.code(event.session_id)

    def detail(self, request: HttpRequest, item: RawEvent) -> dict[str, Any]:
        payload = None
        if item.payload_json is not None:
            payload = json.dumps(json.loads(item.payload_json), indent=2, ensure_ascii=False)
        last = RawEvent.objects.aggregate(last=Max("position"))["last"]
        return {
            "payload": payload,
            "before": item.position - 1 or None,
            "after": item.position + 1 if item.position < last else None,
        }

    def stream_of(self, item: RawEvent) -> str:
        return item.stream_id
