"""The admin's pages of iterations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import Count
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memoryhub.core.admin import HubChangeList, HubModelAdmin, SinceFilter, cells
from memoryhub.core.text import first_line
from sessions_app.admin.sessions import rail
from sessions_app.models import Commit, Iteration, IterationStatus
from sessions_app.timeline import iteration_events

_MAX_COMMITS = 100


class StartedFilter(SinceFilter):
    title = "start"
    field = "started_at"


class IterationChangeList(HubChangeList):
    """Counts the commits of all iterations of a page in one query."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        iterations = list(self.result_list)
        commits = Commit.objects.filter(iteration_id__in=[each.id for each in iterations]).order_by()
        counts = dict(commits.values("iteration_id").annotate(n=Count("id")).values_list("iteration_id", "n"))
        for each in iterations:
            each.commit_count = counts.get(each.id, 0)
        self.result_list = iterations


@dataclass(frozen=True, slots=True)
class Step:
    """One phase: ``done``, ``present``, or ``stopped`` where the work was given up in the midst of it."""

    name: str
    state: str


_LAST = {
    IterationStatus.ACTIVE: "present",
    IterationStatus.COMPLETED: "done",
    IterationStatus.ABANDONED: "stopped",
}
"""How the phase stands that was begun last."""


def steps_of(iteration: Iteration) -> list[Step]:
    """Return the phases in order: those that are done, then the one that was begun last."""
    done = [Step(name, "done") for name in iteration.phases_completed]
    if not iteration.phase or iteration.phase in iteration.phases_completed:
        return done
    return [*done, Step(iteration.phase, _LAST[IterationStatus(iteration.status)])]


@admin.register(Iteration)
class IterationAdmin(HubModelAdmin):
    list_display = ("number", "about", "state", "phases", "commits", "started", "duration")
    list_display_links = ("number", "about")
    list_filter = ("status", "command", StartedFilter)
    search_fields = ("command", "description", "outcome")
    search_help_text = "Words of the description or the outcome"
    quarantine_field = "pk"
    ordering = ("-id",)
    stream_kind = "iteration"
    detail_template = "admin/sessions_app/iteration/detail.html"
    empty_title = "No iteration here"
    empty_text = "An agent that works in phases starts one with iteration_start; commits attach to it by themselves."

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HubChangeList]:
        return IterationChangeList

    def detail(self, request: HttpRequest, found: Iteration) -> dict[str, Any]:
        """Return the phases as steps, the commits, and what happened meanwhile, on its rail."""
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
        """Return what it is for, and the command that began it."""
        words = first_line(iteration.description, 160) or "No description given"
        return format_html('<span class="title">{}</span><code class="id under">{}</code>', words, iteration.command)

    @admin.display(description="status", ordering="status")
    def state(self, iteration: Iteration) -> SafeString:
        return cells.badge(iteration.status, iteration.get_status_display())

    @admin.display(description="phases")
    def phases(self, iteration: Iteration) -> SafeString:
        """Return how many phases are done, and the present one."""
        done = cells.counted(len(iteration.phases_completed), "phase") + " done"
        present = iteration.phase if iteration.status == IterationStatus.ACTIVE else ""
        return format_html('{}<span class="under">{}</span>', done, f"now: {present}" if present else "")

    @admin.display(description="commits")
    def commits(self, iteration: Iteration) -> str:
        return f"{iteration.commit_count:,}"  # type: ignore[attr-defined]

    @admin.display(description="started", ordering="started_at")
    def started(self, iteration: Iteration) -> SafeString:
        return cells.moment(iteration.started_at)

    @admin.display(description="duration")
    def duration(self, iteration: Iteration) -> str:
        """Return how long it took, or has taken so far."""
        return cells.lasted(iteration.started_at, iteration.ended_at)
