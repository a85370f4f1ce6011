"""The admin's pages of sessions."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memoryhub.core.admin import HubChangeList, HubModelAdmin, SinceFilter, cells
from memoryhub.core.contributions import parts_of
from memoryhub.core.events.event_types import event_types
from memoryhub.core.models import RawEvent
from sessions_app.events import COMMIT_RECORDED
from sessions_app.models import Session
from sessions_app.timeline import count_types, session_events, session_titles, timeline_page


def rail(request: HttpRequest, events: QuerySet[RawEvent]) -> dict[str, Any]:
    """Return the context of a rail: the page of ``events`` that is asked for, and what is told of its commits."""
    page = timeline_page(events, before=_position(request, "before"), after=_position(request, "after"))
    entries = (entry for day in page.days for part in day.parts for entry in part.entries)
    commits = [entry.position for entry in entries if entry.type == COMMIT_RECORDED.name]
    return {"timeline": page, "commit_parts": parts_of("commit", commits)}


def _position(request: HttpRequest, name: str) -> int | None:
    given = request.GET.get(name, "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) <= 18 else None


def counted_things(types: dict[str, int]) -> list[tuple[int, str]]:
    """Return what is worth counting of events, from how many there are of each type: ``[(2, "turns"), …]``."""
    tallied = [known for known in event_types() if known.is_tallied and known.nouns and types.get(known.name)]
    return [(types[known.name], known.nouns[types[known.name] != 1]) for known in tallied if known.nouns]


class StartedFilter(SinceFilter):
    title = "start"
    field = "started_at"


class SessionChangeList(HubChangeList):
    """Knows what all sessions of a page are called and counts their events, in as many queries as for one."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        sessions = list(self.result_list)
        names = [session.session_id for session in sessions]
        events = RawEvent.objects.filter(session_id__in=names).values("session_id").order_by()
        counts = dict(events.annotate(events=Count("position")).values_list("session_id", "events"))
        titles = session_titles(sessions)
        for session in sessions:
            session.called = titles[session.session_id]
            session.event_count = counts.get(session.session_id, 0)
        self.result_list = sessions


@admin.register(Session)
class SessionAdmin(HubModelAdmin):
    list_display = ("number", "about", "state", "agent", "started", "duration", "events")
    list_display_links = ("number", "about")
    list_filter = ("status", "mode", StartedFilter)
    search_fields = ("session_id", "purpose", "summary", "agent")
    search_help_text = "Words of the purpose or the summary, the agent, or the session's name"
    quarantine_field = "pk"
    ordering = ("-id",)
    stream_kind = "session"
    detail_template = "admin/sessions_app/session/detail.html"
    empty_title = "No session here"
    empty_text = "An agent that works over MCP starts one with session_start and ends it with a summary."

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HubChangeList]:
        return SessionChangeList

    def get_urls(self) -> list[URLPattern]:
        """Add the address by name, which events and memories refer to."""
        by_name = self.admin_site.admin_view(self.named_view)
        return [path("named/<path:name>/", by_name, name="sessions_app_session_named"), *super().get_urls()]

    def named_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Lead to the session of that name; where none was started, to the events that carry it."""
        found = Session.objects.filter(session_id=name).values_list("id", flat=True).first()
        if found:
            return redirect(self.url("change", found))
        return redirect(reverse("admin:core_rawevent_changelist", query={"session": name}))

    def stream_of(self, found: Session) -> str:
        return f"session:{found.session_id}"

    def stream_url(self, tail: str) -> str:
        return self.url("named", tail)

    def detail(self, request: HttpRequest, found: Session) -> dict[str, Any]:
        """Return what happened in the session, on its rail, and how much of what."""
        events = session_events(found)
        types = count_types(events)
        return {
            "title": session_titles([found])[found.session_id] or "No purpose given",
            "duration": cells.lasted(found.started_at, found.ended_at),
            "counts": counted_things(types),
            "event_total": sum(types.values()),
            **rail(request, events),
        }

    @admin.display(description="#", ordering="id")
    def number(self, session: Session) -> SafeString:
        return cells.code(f"#{session.id}")

    @admin.display(description="session", ordering="purpose")
    def about(self, session: Session) -> SafeString:
        """Return the purpose, else the first prompt, and the name."""
        title = session.called[:160] or "No purpose given"  # type: ignore[attr-defined]
        return format_html('<span class="title">{}</span><code class="id under">{}</code>', title, session.session_id)

    @admin.display(description="status", ordering="status")
    def state(self, session: Session) -> SafeString:
        """Return the status, and the mode where it is the unusual one."""
        mode = cells.badge(session.mode, "Scratch") if session.mode == "scratch" else ""
        return format_html("{} {}", cells.badge(session.status, session.get_status_display()), mode)

    @admin.display(description="started", ordering="started_at")
    def started(self, session: Session) -> SafeString:
        return cells.moment(session.started_at)

    @admin.display(description="duration")
    def duration(self, session: Session) -> str:
        """Return how long it took, or has taken so far."""
        return cells.lasted(session.started_at, session.ended_at)

    @admin.display(description="events")
    def events(self, session: Session) -> str:
        """Return the number of events that carry the session's name."""
        return f"{session.event_count:,}"  # type: ignore[attr-defined]
