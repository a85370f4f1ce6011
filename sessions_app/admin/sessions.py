from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memoryhub.core.admin import HubChangeList, HubModelAdmin, SinceFilter, cells, value_filter
from memoryhub.core.contributions import parts_of
from memoryhub.core.events.event_types import event_types
from memoryhub.core.models import RawEvent
from sessions_app.events import COMMIT_RECORDED
from sessions_app.held_out import is_held_out
from sessions_app.models import Session, SessionMode, SessionStatus
from sessions_app.timeline import count_types, session_events, session_titles, timeline_page


def rail(request: HttpRequest, events: QuerySet[RawEvent]) -> dict[str, Any]:
    # The context of memoryhub/rail.html: one page of events, and the decisions that its commits implement.
    page = timeline_page(events, before=_position(request, "before"), after=_position(request, "after"))
    entries = (entry for day in page.days for part in day.parts for entry in part.entries)
    commits = [entry.position for entry in entries if entry.type == COMMIT_RECORDED.name]
    return {"timeline": page, "commit_parts": parts_of("commit", commits)}


def _position(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def counted_things(types: dict[str, int]) -> list[tuple[int, str]]:
    # Maps counts by event type to [(2, "turns"), …].
    tallied = [type_ for type_ in event_types() if type_.is_tallied and type_.nouns and types.get(type_.name)]
    return [(types[type_.name], type_.nouns[types[type_.name] != 1]) for type_ in tallied if type_.nouns]


# What a session leaves, by the names of its events; the upper ones are declared by apps above this one
_WRITTEN = {"memories": "memory.written", "decisions": "decision.recorded", "commits": COMMIT_RECORDED.name}


class StartedFilter(SinceFilter):
    title = "start"
    field = "started_at"


class SessionChangeList(HubChangeList):
    # The number of queries does not depend on the number of rows.
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        sessions = list(self.result_list)
        names = [session.session_id for session in sessions]
        events = RawEvent.objects.filter(session_id__in=names).values("session_id").order_by()
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
        StartedFilter,
    )
    search_fields = ("session_id", "purpose", "summary", "agent")
    search_help_text = "Purpose, summary, agent or session ID"
    quarantine_field = "pk"
    export_fields = (
        "id",
        "purpose",
        "session_id",
        "status",
        "mode",
        "agent",
        "summary",
        "started_at",
        "ended_at",
    )
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
        found = Session.objects.filter(session_id=name).values_list("id", flat=True).first()
        if found:
            return redirect(self.url("change", found))
        return redirect(reverse("admin:core_rawevent_changelist", query={"session": name}))

    def stream_of(self, found: Session) -> str:
        return f"session:{found.session_id}"

    def stream_url(self, tail: str) -> str:
        return self.url("named", tail)

    def detail(self, request: HttpRequest, found: Session) -> dict[str, Any]:
        events = session_events(found)
        types = count_types(events)
        return {
            "title": session_titles([found])[found.session_id] or "No purpose",
            "duration": cells.lasted(found.started_at, found.ended_at),
            "counts": counted_things(types),
            "event_total": sum(types.values()),
            "wrote": {thing: types.get(name, 0) for thing, name in _WRITTEN.items()},
            "parts": parts_of("session", [found.id])[found.id],
            "held_out": is_held_out(found.session_id),
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
        mode = cells.badge(session.mode, "Scratch") if session.mode == "scratch" else ""
        return format_html("{} {}", cells.badge(session.status, session.get_status_display()), mode)

    @admin.display(description="started", ordering="started_at")
    def started(self, session: Session) -> SafeString:
        return cells.moment(session.started_at)

    @admin.display(description="duration")
    def duration(self, session: Session) -> str:
        return cells.lasted(session.started_at, session.ended_at)

    @admin.display(description="events")
    def events(self, session: Session) -> str:
        return f"{session.event_count:,}"  # type: ignore[attr-defined]
