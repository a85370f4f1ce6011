"""Admin pages of sessions and turns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.contrib import admin
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from memoryhub.core import log
from memoryhub.core.admin import HubChangeList, HubModelAdmin, SinceFilter, ValueFilter, cells, value_filter
from memoryhub.core.contributions import parts_of
from memoryhub.core.events.event_types import event_types
from memoryhub.core.log import EventQuerySet
from sessions_app.events import COMMIT_RECORDED
from sessions_app.models import Session, SessionMode, SessionStatus, Turn, TurnStatus
from sessions_app.services.sessions import is_held_out
from sessions_app.timeline import count_types, first_prompts, session_events, session_titles, timeline_page, turn_events


def rail(request: HttpRequest, events: EventQuerySet) -> dict[str, Any]:
    # The context of memoryhub/rail.html: one page of events, and the decisions that its commits implement.
    page = timeline_page(events, before=_position(request, "before"), after=_position(request, "after"))
    entries = (entry for day in page.days for part in day.parts for entry in part.entries)
    commits = [entry.position for entry in entries if entry.type == COMMIT_RECORDED.name]
    return {"timeline": page, "commit_parts": parts_of("commit", commits)}


def _position(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name, "")
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    return None


def counted_things(types: dict[str, int]) -> list[tuple[int, str]]:
    # Maps counts by event type to [(2, "turns"), …].
    tallied = [type_ for type_ in event_types() if type_.is_tallied and type_.nouns and types.get(type_.name)]
    return [(types[type_.name], type_.nouns[types[type_.name] != 1]) for type_ in tallied if type_.nouns]


# What a session leaves, by the names of its events; the upper ones are declared by apps above this one
_WRITTEN = {"memories": "memory.written", "decisions": "decision.recorded", "commits": COMMIT_RECORDED.name}


class SessionStartFilter(SinceFilter):
    title = "start"
    field = "started_at"


class SessionChangeList(HubChangeList):
    # The number of queries does not depend on the number of rows.
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        sessions = list(self.result_list)
        names = [session.session_id for session in sessions]
        events = log.events().of_session(*names).values("session_id").order_by()
        counts = dict(events.annotate(events=Count("position")).values_list("session_id", "events"))
        titles = session_titles(sessions)
        for session in sessions:
            session.title = titles[session.session_id]
            session.event_count = counts.get(session.session_id, 0)
        self.result_list = sessions


@admin.register(Session)
class SessionAdmin(HubModelAdmin):
    list_display = ("number", "about", "state", "agent", "started", "duration", "events")
    list_display_links = ("number", "about")
    list_filter = (
        value_filter("status", SessionStatus.choices),
        value_filter("mode", SessionMode.choices),
        value_filter("agent"),
        SessionStartFilter,
    )
    search_fields = ("session_id", "purpose", "summary", "agent")
    search_help_text = "Purpose, summary, agent or session ID"
    quarantine_field = "pk"
    export_fields = ("id", "purpose", "session_id", "status", "mode", "agent", "summary", "started_at", "ended_at")
    ordering = ("-id",)
    stream_kind = "session"
    detail_template = "admin/sessions_app/session/detail.html"
    empty_title = "No sessions yet"
    empty_text = "Connect an agent over MCP: it starts a session with session_start and ends it with a summary."

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HubChangeList]:
        return SessionChangeList

    def get_urls(self) -> list[URLPattern]:
        # Events and memories refer to a session by name.
        by_name = self.admin_site.admin_view(self.named_view)
        return [path("named/<path:name>/", by_name, name="sessions_app_session_named"), *super().get_urls()]

    def named_view(self, request: HttpRequest, name: str) -> HttpResponse:
        session_id = Session.objects.filter(session_id=name).values_list("id", flat=True).first()
        if session_id:
            return redirect(self.url("change", session_id))
        return redirect(reverse("admin:core_rawevent_changelist", query={"session": name}))

    def stream_of(self, session: Session) -> str:
        return f"session:{session.session_id}"

    def stream_url(self, tail: str) -> str:
        return self.url("named", tail)

    def detail(self, request: HttpRequest, session: Session) -> dict[str, Any]:
        events = session_events(session)
        types = count_types(events)
        return {
            "title": session_titles([session])[session.session_id] or "No purpose",
            "duration": cells.lasted(session.started_at, session.ended_at),
            "counts": counted_things(types),
            "event_total": sum(types.values()),
            "wrote": {thing: types.get(name, 0) for thing, name in _WRITTEN.items()},
            "parts": parts_of("session", [session.id])[session.id],
            "held_out": is_held_out(session.session_id),
            **rail(request, events),
        }

    @admin.display(description="#", ordering="id")
    def number(self, session: Session) -> SafeString:
        return cells.code(f"#{session.id}")

    @admin.display(description="session", ordering="purpose")
    def about(self, session: Session) -> SafeString:
        title = session.title[:160] or "No purpose"  # type: ignore[attr-defined]
        return format_html('<span class="title">{}</span><code class="id under">{}</code>', title, session.session_id)

    @admin.display(description="status", ordering="status")
    def state(self, session: Session) -> SafeString:
        badge = cells.badge(session.status, session.get_status_display())
        if session.mode == SessionMode.SCRATCH:
            return format_html("{} {}", badge, cells.badge(session.mode, "Scratch"))
        return badge

    @admin.display(description="started", ordering="started_at")
    def started(self, session: Session) -> SafeString:
        return cells.moment(session.started_at)

    @admin.display(description="duration")
    def duration(self, session: Session) -> str:
        return cells.lasted(session.started_at, session.ended_at)

    @admin.display(description="events")
    def events(self, session: Session) -> str:
        return f"{session.event_count:,}"  # type: ignore[attr-defined]


_LABEL = 40


class TurnStartFilter(SinceFilter):
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
        if not self.values:
            return queryset
        return queryset.filter(automatic__in=[value == "hub" for value in self.values])


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
    list_filter = (value_filter("status", TurnStatus.choices), RecorderFilter, TurnStartFilter, SessionFilter)
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
        first = log.events().of_stream(stream).filter(stream_seq=1).values("position")
        turn_id = Turn.objects.filter(id__in=first).values_list("id", flat=True).first()
        if turn_id:
            return redirect(self.url("change", turn_id))
        return redirect(reverse("admin:core_rawevent_changelist", query={"stream": stream}))

    def stream_of(self, turn: Turn) -> str:
        # A stream contains the names of session and turn, or a digest of long ones.
        return str(log.events().values_list("stream_id", flat=True).get(position=turn.id))

    def stream_url(self, tail: str) -> str:
        if not tail.strip("/"):
            raise NoReverseMatch("a turn's stream ID contains names")
        return self.url("stream", tail)

    def detail(self, request: HttpRequest, turn: Turn) -> dict[str, Any]:
        events = turn_events(turn)
        return {
            "title": first_prompts([turn]).get(turn.id) or f"Turn {turn.turn_id}",
            "session": Session.objects.filter(session_id=turn.session_id).first(),
            "duration": cells.lasted(turn.began_at, turn.ended_at),
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
        badge = cells.badge(turn.status, turn.get_status_display())
        if turn.automatic:
            return format_html("{} {}", badge, cells.badge("automatic", "Automatic"))
        return badge

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
