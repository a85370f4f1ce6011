"""Admin pages of sessions, turns, commits and iterations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from memoryhub.core import log
from memoryhub.core.admin import HubChangeList, HubModelAdmin, ValueFilter, cells, since_filter, value_filter
from memoryhub.core.admin.svg import change_widths
from memoryhub.core.contributions import parts_of
from memoryhub.core.events.event_types import event_types
from memoryhub.core.log import EventQuerySet
from memoryhub.core.text import first_line
from sessions_app import models, timeline
from sessions_app.events import COMMIT_RECORDED
from sessions_app.services.sessions import is_held_out

_MAX_FILES = 500
_MAX_COMMITS = 100
# What a session leaves, by the names of its events; the upper ones are declared by apps above this one
_WRITTEN = {"memories": "memory.written", "decisions": "decision.recorded", "commits": COMMIT_RECORDED.name}
# State of the phase that was started last
_LAST_STATES = {
    models.IterationStatus.ACTIVE: "current",
    models.IterationStatus.COMPLETED: "done",
    models.IterationStatus.ABANDONED: "stopped",
}


def rail(request: HttpRequest, events: EventQuerySet) -> dict[str, Any]:
    # The context of memoryhub/rail.html: one page of events, and the decisions that its commits implement.
    page = timeline.timeline_page(events, before=_position(request, "before"), after=_position(request, "after"))
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
    things = []
    for type_ in event_types():
        count = types.get(type_.name)
        if type_.is_tallied and type_.nouns and count:
            things.append((count, type_.nouns[count != 1]))
    return things


class SessionFilter(ValueFilter):
    title = "session"
    parameter_name = "session"
    field = "session_id"
    wide = True

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        names = list(values)
        purposes = dict(models.Session.objects.filter(session_id__in=names).values_list("session_id", "purpose"))
        return {name: Truncator(purposes.get(name) or name).chars(40) for name in names}


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


class AuthorFilter(ValueFilter):
    title = "author"
    parameter_name = "author"
    field = "author"
    wide = True

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        return {value: value.partition(" <")[0] for value in values}


class WorkChangeList(HubChangeList):
    # The number of queries does not depend on the number of rows.
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        self.model_admin.complete(self.result_list)  # type: ignore[attr-defined]


class WorkAdmin(HubModelAdmin):
    quarantine_field = "pk"
    ordering = ("-id",)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HubChangeList]:
        return WorkChangeList

    def complete(self, rows: list[Any]) -> None:
        """Add to a page's rows what the list shows of other tables."""

    def change_or_events(self, entries: QuerySet[Any], **query: str) -> HttpResponse:
        """Redirect to the page of the first entry; without one, to the events of the query."""
        entry_id = entries.values_list("id", flat=True).first()
        if entry_id:
            return redirect(self.url("change", entry_id))
        return redirect(reverse("admin:core_rawevent_changelist", query=query))

    @admin.display(description="#", ordering="id")
    def number(self, entry: Any) -> SafeString:
        return cells.code(f"#{entry.id}")

    @admin.display(description="started", ordering="started_at")
    def started(self, entry: Any) -> SafeString:
        return cells.moment(entry.started_at)

    @admin.display(description="duration")
    def duration(self, entry: Any) -> str:
        return cells.lasted(entry.started_at, entry.ended_at)


@admin.register(models.Session)
class SessionAdmin(WorkAdmin):
    list_display = ("number", "about", "state", "agent", "started", "duration", "events")
    list_display_links = ("number", "about")
    list_filter = (
        value_filter("status", models.SessionStatus.choices),
        value_filter("mode", models.SessionMode.choices),
        value_filter("agent"),
        since_filter("start", "started_at"),
    )
    search_fields = ("session_id", "purpose", "summary", "agent")
    search_help_text = "Purpose, summary, agent or session ID"
    export_fields = ("id", "purpose", "session_id", "status", "mode", "agent", "summary", "started_at", "ended_at")
    stream_kind = "session"
    detail_template = "admin/sessions_app/session/detail.html"
    empty_title = "No sessions yet"
    empty_text = "Connect an agent over MCP: it starts a session with session_start and ends it with a summary."

    def complete(self, rows: list[Any]) -> None:
        events = log.events().of_session(*[session.session_id for session in rows]).values("session_id").order_by()
        counts = dict(events.annotate(events=Count("position")).values_list("session_id", "events"))
        titles = timeline.session_titles(rows)
        for session in rows:
            session.title = titles[session.session_id]
            session.event_count = counts.get(session.session_id, 0)

    def get_urls(self) -> list[URLPattern]:
        # Events and memories refer to a session by name.
        by_name = self.admin_site.admin_view(self.named_view)
        return [path("named/<path:name>/", by_name, name="sessions_app_session_named"), *super().get_urls()]

    def named_view(self, request: HttpRequest, name: str) -> HttpResponse:
        return self.change_or_events(models.Session.objects.filter(session_id=name), session=name)

    def stream_of(self, session: models.Session) -> str:
        return f"session:{session.session_id}"

    def stream_url(self, tail: str) -> str:
        return self.url("named", tail)

    def detail(self, request: HttpRequest, session: models.Session) -> dict[str, Any]:
        events = timeline.session_events(session)
        types = events.count_by_type()
        return {
            "title": timeline.session_titles([session])[session.session_id] or "No purpose",
            "duration": self.duration(session),
            "counts": counted_things(types),
            "event_total": sum(types.values()),
            "wrote": {thing: types.get(name, 0) for thing, name in _WRITTEN.items()},
            "parts": parts_of("session", [session.id])[session.id],
            "held_out": is_held_out(session.session_id),
            **rail(request, events),
        }

    @admin.display(description="session", ordering="purpose")
    def about(self, session: models.Session) -> SafeString:
        title = session.title[:160] or "No purpose"  # type: ignore[attr-defined]
        return format_html('<span class="title">{}</span><code class="id under">{}</code>', title, session.session_id)

    @admin.display(description="status", ordering="status")
    def state(self, session: models.Session) -> SafeString:
        badge = cells.badge(session.status, session.get_status_display())
        if session.mode == models.SessionMode.SCRATCH:
            return format_html("{} {}", badge, cells.badge(session.mode, "Scratch"))
        return badge

    @admin.display(description="events")
    def events(self, session: models.Session) -> str:
        return f"{session.event_count:,}"  # type: ignore[attr-defined]


@admin.register(models.Turn)
class TurnAdmin(WorkAdmin):
    list_display = ("number", "about", "state", "session", "began", "duration", "events")
    list_display_links = ("number", "about")
    list_filter = (
        value_filter("status", models.TurnStatus.choices),
        RecorderFilter,
        since_filter("start", "began_at"),
        SessionFilter,
    )
    search_fields = ("turn_id", "session_id", "summary", "actor")
    search_help_text = "Summary, actor, turn ID or session ID"
    stream_kind = "turn"
    detail_template = "admin/sessions_app/turn/detail.html"
    empty_title = "No turns yet"
    empty_text = "Connect an agent over MCP: the hub records a turn for each request in which the agent writes."

    def complete(self, rows: list[Any]) -> None:
        prompts = timeline.first_prompts(rows)
        titles = timeline.session_titles(
            models.Session.objects.filter(session_id__in={turn.session_id for turn in rows})
        )
        for turn in rows:
            turn.prompt = prompts.get(turn.id, "")
            turn.session_title = titles.get(turn.session_id, "")

    def get_urls(self) -> list[URLPattern]:
        by_stream = self.admin_site.admin_view(self.stream_view)
        return [path("stream/<path:tail>/", by_stream, name="sessions_app_turn_stream"), *super().get_urls()]

    def stream_view(self, request: HttpRequest, tail: str) -> HttpResponse:
        stream = f"turn:{tail}"
        first = log.events().of_stream(stream).filter(stream_seq=1).values("position")
        return self.change_or_events(models.Turn.objects.filter(id__in=first), stream=stream)

    def stream_of(self, turn: models.Turn) -> str:
        # A stream contains the names of session and turn, or a digest of long ones.
        return str(log.events().values_list("stream_id", flat=True).get(position=turn.id))

    def stream_url(self, tail: str) -> str:
        if not tail.strip("/"):
            raise NoReverseMatch("a turn's stream ID contains names")
        return self.url("stream", tail)

    def detail(self, request: HttpRequest, turn: models.Turn) -> dict[str, Any]:
        events = timeline.turn_events(turn)
        return {
            "title": timeline.first_prompts([turn]).get(turn.id) or f"Turn {turn.turn_id}",
            "session": models.Session.objects.filter(session_id=turn.session_id).first(),
            "duration": self.duration(turn),
            "counts": [pair for pair in counted_things(events.count_by_type()) if not pair[1].startswith("turn")],
            "is_alone": True,
            **rail(request, events),
        }

    @admin.display(description="turn")
    def about(self, turn: models.Turn) -> SafeString:
        title = turn.prompt or turn.summary.split("\n", 1)[0] or "No prompt recorded"  # type: ignore[attr-defined]
        return format_html('<span class="title">{}</span><code class="id under">{}</code>', title[:160], turn.turn_id)

    @admin.display(description="status", ordering="status")
    def state(self, turn: models.Turn) -> SafeString:
        badge = cells.badge(turn.status, turn.get_status_display())
        if turn.automatic:
            return format_html("{} {}", badge, cells.badge("automatic", "Automatic"))
        return badge

    @admin.display(description="session", ordering="session_id")
    def session(self, turn: models.Turn) -> SafeString:
        url = reverse("admin:sessions_app_session_named", args=[turn.session_id])
        return cells.link(url, turn.session_title[:60] or turn.session_id)  # type: ignore[attr-defined]

    @admin.display(description="started", ordering="began_at")
    def began(self, turn: models.Turn) -> SafeString:
        return cells.moment(turn.began_at)

    @admin.display(description="duration")
    def duration(self, turn: models.Turn) -> str:
        return cells.lasted(turn.began_at, turn.ended_at)

    @admin.display(description="events", ordering="event_count")
    def events(self, turn: models.Turn) -> str:
        return f"{turn.event_count:,}"


@admin.register(models.Commit)
class CommitAdmin(WorkAdmin):
    list_display = ("number", "subject", "author_name", "committed", "change")
    list_display_links = ("number", "subject")
    list_filter = (AuthorFilter, since_filter("date", "committed_at"))
    search_fields = ("sha", "message", "author")
    search_help_text = "Message, author or start of the hash"
    export_fields = ("id", "message", "sha", "author", "committed_at")
    ordering = ("-committed_at",)
    stream_kind = "commit"
    detail_template = "admin/sessions_app/commit/detail.html"
    empty_title = "No commits yet"
    empty_text = "Run “memory-hub import git” in the repository to import its history."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        commits = super().get_queryset(request)
        url_name = request.resolver_match and request.resolver_match.url_name
        if url_name == "sessions_app_commit_changelist":
            return commits.defer("files")
        return commits

    def get_urls(self) -> list[URLPattern]:
        by_sha = self.admin_site.admin_view(self.sha_view)
        return [path("sha/<str:sha>/", by_sha, name="sessions_app_commit_sha"), *super().get_urls()]

    def sha_view(self, request: HttpRequest, sha: str) -> HttpResponse:
        return self.change_or_events(models.Commit.objects.filter(sha=sha), stream=f"commit:{sha}")

    def stream_of(self, commit: models.Commit) -> str:
        return f"commit:{commit.sha}"

    def stream_url(self, tail: str) -> str:
        return self.url("sha", tail)

    def detail(self, request: HttpRequest, commit: models.Commit) -> dict[str, Any]:
        subject, _, body = commit.message.partition("\n")
        return {
            "title": subject or commit.sha[:10],
            "author_name": self.author_name(commit),
            "body": body.strip(),
            "event": log.events().filter(position=commit.id).defer("payload_json").first(),
            "files": changed_files(commit.files[:_MAX_FILES]),
            "hidden_files": max(0, len(commit.files) - _MAX_FILES),
            "parts": parts_of("commit", [commit.id])[commit.id],
        }

    @admin.display(description="commit")
    def subject(self, commit: models.Commit) -> SafeString:
        line = first_line(commit.message, 160) or "No message"
        return format_html('<span class="title">{}</span><code class="id under">{}</code>', line, commit.sha[:10])

    @admin.display(description="author", ordering="author")
    def author_name(self, commit: models.Commit) -> str:
        return commit.author.partition(" <")[0]

    @admin.display(description="committed", ordering="committed_at")
    def committed(self, commit: models.Commit) -> SafeString:
        return cells.moment(commit.committed_at)

    @admin.display(description="lines", ordering="insertions")
    def change(self, commit: models.Commit) -> SafeString:
        return format_html(
            '<span class="lines"><span class="plus">+{}</span> <span class="minus">−{}</span></span>',
            f"{commit.insertions:,}",
            f"{commit.deletions:,}",
        )


def changed_files(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # The file with the most changed lines fills the bar's width.
    most = max(((file["insertions"] or 0) + (file["deletions"] or 0) for file in files), default=0)
    rows = []
    for file in files:
        plus, minus = change_widths(file["insertions"], file["deletions"], most)
        rows.append({**file, "plus": plus, "minus": minus, "is_binary": file["insertions"] is None})
    return rows


@dataclass(frozen=True, slots=True)
class PhaseStep:
    name: str
    state: str  # done, current or stopped


@admin.register(models.Iteration)
class IterationAdmin(WorkAdmin):
    list_display = ("number", "about", "state", "phases", "commits", "started", "duration")
    list_display_links = ("number", "about")
    list_filter = (
        value_filter("status", models.IterationStatus.choices),
        value_filter("command"),
        since_filter("start", "started_at"),
    )
    search_fields = ("command", "description", "outcome")
    search_help_text = "Command, description or outcome"
    stream_kind = "iteration"
    detail_template = "admin/sessions_app/iteration/detail.html"
    empty_title = "No iterations yet"
    empty_text = (
        "An agent that works in phases starts one with iteration_start. Its commits are attached automatically."
    )

    def complete(self, rows: list[Any]) -> None:
        commits = models.Commit.objects.filter(iteration_id__in=[iteration.id for iteration in rows]).order_by()
        counts = dict(commits.values("iteration_id").annotate(n=Count("id")).values_list("iteration_id", "n"))
        for iteration in rows:
            iteration.commit_count = counts.get(iteration.id, 0)

    def detail(self, request: HttpRequest, iteration: models.Iteration) -> dict[str, Any]:
        steps = [PhaseStep(name, "done") for name in iteration.phases_completed]
        if iteration.phase and iteration.phase not in iteration.phases_completed:
            steps.append(PhaseStep(iteration.phase, _LAST_STATES[models.IterationStatus(iteration.status)]))
        commits = models.Commit.objects.filter(iteration_id=iteration.id)
        return {
            "title": first_line(iteration.description) or iteration.command,
            "duration": self.duration(iteration),
            "steps": steps,
            "commits": commits.defer("files").order_by("-id")[:_MAX_COMMITS],
            "commit_total": commits.count(),
            **rail(request, log.events().window(after=iteration.id - 1, up_to=iteration.end_position)),
        }

    @admin.display(description="iteration", ordering="description")
    def about(self, iteration: models.Iteration) -> SafeString:
        title = first_line(iteration.description, 160) or "No description"
        return format_html('<span class="title">{}</span><code class="id under">{}</code>', title, iteration.command)

    @admin.display(description="status", ordering="status")
    def state(self, iteration: models.Iteration) -> SafeString:
        return cells.badge(iteration.status, iteration.get_status_display())

    @admin.display(description="phases")
    def phases(self, iteration: models.Iteration) -> SafeString:
        completed = cells.counted(len(iteration.phases_completed), "phase") + " done"
        current = ""
        if iteration.phase and iteration.status == models.IterationStatus.ACTIVE:
            current = f"now: {iteration.phase}"
        return format_html('{}<span class="under">{}</span>', completed, current)

    @admin.display(description="commits")
    def commits(self, iteration: models.Iteration) -> str:
        return f"{iteration.commit_count:,}"  # type: ignore[attr-defined]
