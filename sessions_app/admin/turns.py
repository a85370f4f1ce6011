from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from memoryhub.core.admin import HubChangeList, HubModelAdmin, SinceFilter, ValueFilter, cells, value_filter
from memoryhub.core.models import RawEvent
from sessions_app.admin.sessions import counted_things, rail
from sessions_app.models import Session, Turn, TurnStatus
from sessions_app.timeline import count_types, first_prompts, session_titles, turn_events

_LABEL = 40


class StartedFilter(SinceFilter):
    title = "start"
    field = "began_at"


class SessionFilter(ValueFilter):
    title = "session"
    parameter_name = "session"
    field = "session_id"
    wide = True

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        names = list(values)
        purposes = dict(Session.objects.filter(session_id__in=names).values_list("session_id", "purpose"))
        return {name: Truncator(purposes.get(name) or name).chars(_LABEL) for name in names}


class RecorderFilter(ValueFilter):
    title = "recorded by"
    parameter_name = "keeper"
    field = "automatic"
    offered = (("hub", "Hub (automatic)"), ("client", "Client (with a token)"))

    def values_of(self, key: Any) -> Collection[str]:
        return ("hub" if key else "client",)

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.filter(automatic__in=[value == "hub" for value in self.values]) if self.values else queryset


class TurnChangeList(HubChangeList):
    # The number of queries does not depend on the number of rows.
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        turns = list(self.result_list)
        prompts = first_prompts(turns)
        sessions = Session.objects.filter(session_id__in={turn.session_id for turn in turns})
        titles = session_titles(sessions)
        for turn in turns:
            turn.prompt = prompts.get(turn.id, "")
            turn.session_title = titles.get(turn.session_id, "")
        self.result_list = turns


@admin.register(Turn)
class TurnAdmin(HubModelAdmin):
    list_display = ("number", "about", "state", "session", "began", "duration", "events")
    list_display_links = ("number", "about")
    list_filter = (value_filter("status", TurnStatus.choices), RecorderFilter, StartedFilter, SessionFilter)
    search_fields = ("turn_id", "session_id", "summary", "actor")
    search_help_text = "Summary, actor, turn ID or session ID"
    quarantine_field = "pk"
    ordering = ("-id",)
    stream_kind = "turn"
    detail_template = "admin/sessions_app/turn/detail.html"
    empty_title = "No turns yet"
    empty_text = "Connect an agent over MCP: the hub records a turn for each request in which the agent writes."

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HubChangeList]:
        return TurnChangeList

    def get_urls(self) -> list[URLPattern]:
        by_stream = self.admin_site.admin_view(self.stream_view)
        return [path("stream/<path:tail>/", by_stream, name="sessions_app_turn_stream"), *super().get_urls()]

    def stream_view(self, request: HttpRequest, tail: str) -> HttpResponse:
        stream = f"turn:{tail}"
        first = RawEvent.objects.filter(stream_id=stream, stream_seq=1).values("position")
        found = Turn.objects.filter(id__in=first).values_list("id", flat=True).first()
        if found:
            return redirect(self.url("change", found))
        return redirect(reverse("admin:core_rawevent_changelist", query={"stream": stream}))

    def stream_of(self, found: Turn) -> str:
        # A stream contains the names of session and turn, or a digest of long ones.
        return str(RawEvent.objects.values_list("stream_id", flat=True).get(position=found.id))

    def stream_url(self, tail: str) -> str:
        if not tail.strip("/"):
            raise NoReverseMatch("a turn's stream ID contains names")
        return self.url("stream", tail)

    def detail(self, request: HttpRequest, found: Turn) -> dict[str, Any]:
        events = turn_events(found)
        return {
            "title": first_prompts([found]).get(found.id) or f"Turn {found.turn_id}",
            "session": Session.objects.filter(session_id=found.session_id).first(),
            "duration": cells.lasted(found.began_at, found.ended_at),
            "counts": [pair for pair in counted_things(count_types(events)) if not pair[1].startswith("turn")],
            "is_alone": True,
            **rail(request, events),
        }

    @admin.display(description="#", ordering="id")
    def number(self, turn: Turn) -> SafeString:
        return cells.code(f"#{turn.id}")

    @admin.display(description="turn")
    def about(self, turn: Turn) -> SafeString:
        title = turn.prompt or turn.summary.split("\n", 1)[0] or "No prompt recorded"  # type: ignore[attr-defined]
        return format_html('<span class="title">{}</span><code class="id under">{}</code>', title[:160], turn.turn_id)

    @admin.display(description="status", ordering="status")
    def state(self, turn: Turn) -> SafeString:
        mark = cells.badge("automatic", "Automatic") if turn.automatic else ""
        return format_html("{} {}", cells.badge(turn.status, turn.get_status_display()), mark)

    @admin.display(description="session", ordering="session_id")
    def session(self, turn: Turn) -> SafeString:
        url = reverse("admin:sessions_app_session_named", args=[turn.session_id])
        return cells.link(url, turn.session_title[:60] or turn.session_id)  # type: ignore[attr-defined]

    @admin.display(description="started", ordering="began_at")
    def began(self, turn: Turn) -> SafeString:
        return cells.moment(turn.began_at)

    @admin.display(description="duration")
    def duration(self, turn: Turn) -> str:
        return cells.lasted(turn.began_at, turn.ended_at)

    @admin.display(description="events", ordering="event_count")
    def events(self, turn: Turn) -> str:
        return f"{turn.event_count:,}"
