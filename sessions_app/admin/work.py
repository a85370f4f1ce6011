"""Admin pages of commits and iterations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memoryhub.core import log
from memoryhub.core.admin import HubChangeList, HubModelAdmin, SinceFilter, ValueFilter, cells, value_filter
from memoryhub.core.admin.svg import change_widths
from memoryhub.core.contributions import parts_of
from memoryhub.core.text import first_line
from sessions_app.admin.sessions import rail
from sessions_app.models import Commit, Iteration, IterationStatus
from sessions_app.timeline import iteration_events

_MAX_FILES = 500


class CommittedFilter(SinceFilter):
    title = "date"
    field = "committed_at"


class AuthorFilter(ValueFilter):
    title = "author"
    parameter_name = "author"
    field = "author"
    wide = True

    def labels(self, values: Iterable[str]) -> Mapping[str, str]:
        return {value: value.partition(" <")[0] for value in values}


@admin.register(Commit)
class CommitAdmin(HubModelAdmin):
    list_display = ("number", "subject", "author_name", "committed", "change")
    list_display_links = ("number", "subject")
    list_filter = (AuthorFilter, CommittedFilter)
    search_fields = ("sha", "message", "author")
    search_help_text = "Message, author or start of the hash"
    quarantine_field = "pk"
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
        commit_id = Commit.objects.filter(sha=sha).values_list("id", flat=True).first()
        if commit_id:
            return redirect(self.url("change", commit_id))
        return redirect(reverse("admin:core_rawevent_changelist", query={"stream": f"commit:{sha}"}))

    def stream_of(self, commit: Commit) -> str:
        return f"commit:{commit.sha}"

    def stream_url(self, tail: str) -> str:
        return self.url("sha", tail)

    def detail(self, request: HttpRequest, commit: Commit) -> dict[str, Any]:
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

    @admin.display(description="#", ordering="id")
    def number(self, commit: Commit) -> SafeString:
        return cells.code(f"#{commit.id}")

    @admin.display(description="commit")
    def subject(self, commit: Commit) -> SafeString:
        line = first_line(commit.message, 160) or "No message"
        return format_html('<span class="title">{}</span><code class="id under">{}</code>', line, commit.sha[:10])

    @admin.display(description="author", ordering="author")
    def author_name(self, commit: Commit) -> str:
        return commit.author.partition(" <")[0]

    @admin.display(description="committed", ordering="committed_at")
    def committed(self, commit: Commit) -> SafeString:
        return cells.moment(commit.committed_at)

    @admin.display(description="lines", ordering="insertions")
    def change(self, commit: Commit) -> SafeString:
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


_MAX_COMMITS = 100


class IterationStartFilter(SinceFilter):
    title = "start"
    field = "started_at"


class IterationChangeList(HubChangeList):
    # One query counts the commits of all rows of a page.
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        iterations = list(self.result_list)
        commits = Commit.objects.filter(iteration_id__in=[iteration.id for iteration in iterations]).order_by()
        counts = dict(commits.values("iteration_id").annotate(n=Count("id")).values_list("iteration_id", "n"))
        for iteration in iterations:
            iteration.commit_count = counts.get(iteration.id, 0)
        self.result_list = iterations


@dataclass(frozen=True, slots=True)
class PhaseStep:
    name: str
    state: str  # done, current or stopped


# State of the phase that was started last
_LAST_STATES = {
    IterationStatus.ACTIVE: "current",
    IterationStatus.COMPLETED: "done",
    IterationStatus.ABANDONED: "stopped",
}


def steps_of(iteration: Iteration) -> list[PhaseStep]:
    steps = [PhaseStep(name, "done") for name in iteration.phases_completed]
    if not iteration.phase or iteration.phase in iteration.phases_completed:
        return steps
    return [*steps, PhaseStep(iteration.phase, _LAST_STATES[IterationStatus(iteration.status)])]


@admin.register(Iteration)
class IterationAdmin(HubModelAdmin):
    list_display = ("number", "about", "state", "phases", "commits", "started", "duration")
    list_display_links = ("number", "about")
    list_filter = (value_filter("status", IterationStatus.choices), value_filter("command"), IterationStartFilter)
    search_fields = ("command", "description", "outcome")
    search_help_text = "Command, description or outcome"
    quarantine_field = "pk"
    ordering = ("-id",)
    stream_kind = "iteration"
    detail_template = "admin/sessions_app/iteration/detail.html"
    empty_title = "No iterations yet"
    empty_text = (
        "An agent that works in phases starts one with iteration_start. Its commits are attached automatically."
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HubChangeList]:
        return IterationChangeList

    def detail(self, request: HttpRequest, iteration: Iteration) -> dict[str, Any]:
        commits = Commit.objects.filter(iteration_id=iteration.id)
        return {
            "title": first_line(iteration.description) or iteration.command,
            "duration": cells.lasted(iteration.started_at, iteration.ended_at),
            "steps": steps_of(iteration),
            "commits": commits.defer("files").order_by("-id")[:_MAX_COMMITS],
            "commit_total": commits.count(),
            **rail(request, iteration_events(iteration)),
        }

    @admin.display(description="#", ordering="id")
    def number(self, iteration: Iteration) -> SafeString:
        return cells.code(f"#{iteration.id}")

    @admin.display(description="iteration", ordering="description")
    def about(self, iteration: Iteration) -> SafeString:
        title = first_line(iteration.description, 160) or "No description"
        return format_html('<span class="title">{}</span><code class="id under">{}</code>', title, iteration.command)

    @admin.display(description="status", ordering="status")
    def state(self, iteration: Iteration) -> SafeString:
        return cells.badge(iteration.status, iteration.get_status_display())

    @admin.display(description="phases")
    def phases(self, iteration: Iteration) -> SafeString:
        completed = cells.counted(len(iteration.phases_completed), "phase") + " done"
        current = ""
        if iteration.phase and iteration.status == IterationStatus.ACTIVE:
            current = f"now: {iteration.phase}"
        return format_html('{}<span class="under">{}</span>', completed, current)

    @admin.display(description="commits")
    def commits(self, iteration: Iteration) -> str:
        return f"{iteration.commit_count:,}"  # type: ignore[attr-defined]

    @admin.display(description="started", ordering="started_at")
    def started(self, iteration: Iteration) -> SafeString:
        return cells.moment(iteration.started_at)

    @admin.display(description="duration")
    def duration(self, iteration: Iteration) -> str:
        return cells.lasted(iteration.started_at, iteration.ended_at)
