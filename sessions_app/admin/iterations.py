from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import Count
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memoryhub.core.admin import HubChangeList, HubModelAdmin, SinceFilter, cells, value_filter
from memoryhub.core.text import first_line
from sessions_app.admin.sessions import rail
from sessions_app.models import Commit, Iteration, IterationStatus
from sessions_app.timeline import iteration_events

_MAX_COMMITS = 100


class StartedFilter(SinceFilter):
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
class Step:
    name: str
    state: str  # done, current or stopped


# State of the phase that was started last
_LAST_STATES = {
    IterationStatus.ACTIVE: "current",
    IterationStatus.COMPLETED: "done",
    IterationStatus.ABANDONED: "stopped",
}


def steps_of(iteration: Iteration) -> list[Step]:
    done = [Step(name, "done") for name in iteration.phases_completed]
    if not iteration.phase or iteration.phase in iteration.phases_completed:
        return done
    return [*done, Step(iteration.phase, _LAST_STATES[IterationStatus(iteration.status)])]


@admin.register(Iteration)
class IterationAdmin(HubModelAdmin):
    list_display = ("number", "about", "state", "phases", "commits", "started", "duration")
    list_display_links = ("number", "about")
    list_filter = (value_filter("status", IterationStatus.choices), value_filter("command"), StartedFilter)
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

    def detail(self, request: HttpRequest, found: Iteration) -> dict[str, Any]:
        commits = Commit.objects.filter(iteration_id=found.id)
        return {
            "title": first_line(found.description) or found.command,
            "duration": cells.lasted(found.started_at, found.ended_at),
            "steps": steps_of(found),
            "commits": commits.defer("files").order_by("-id")[:_MAX_COMMITS],
            "commit_total": commits.count(),
            **rail(request, iteration_events(found)),
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
        done = cells.counted(len(iteration.phases_completed), "phase") + " done"
        current = iteration.phase if iteration.status == IterationStatus.ACTIVE else ""
        return format_html('{}<span class="under">{}</span>', done, f"now: {current}" if current else "")

    @admin.display(description="commits")
    def commits(self, iteration: Iteration) -> str:
        return f"{iteration.commit_count:,}"  # type: ignore[attr-defined]

    @admin.display(description="started", ordering="started_at")
    def started(self, iteration: Iteration) -> SafeString:
        return cells.moment(iteration.started_at)

    @admin.display(description="duration")
    def duration(self, iteration: Iteration) -> str:
        return cells.lasted(iteration.started_at, iteration.ended_at)
