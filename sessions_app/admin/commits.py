from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memoryhub.core.admin import HubModelAdmin, SinceFilter, ValueFilter, cells
from memoryhub.core.admin.charts import change_widths
from memoryhub.core.contributions import parts_of
from memoryhub.core.models import RawEvent
from memoryhub.core.text import first_line
from sessions_app.models import Commit

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
        return commits.defer("files") if url_name == "sessions_app_commit_changelist" else commits

    def get_urls(self) -> list[URLPattern]:
        by_sha = self.admin_site.admin_view(self.sha_view)
        return [path("sha/<str:sha>/", by_sha, name="sessions_app_commit_sha"), *super().get_urls()]

    def sha_view(self, request: HttpRequest, sha: str) -> HttpResponse:
        found = Commit.objects.filter(sha=sha).values_list("id", flat=True).first()
        if found:
            return redirect(self.url("change", found))
        return redirect(reverse("admin:core_rawevent_changelist", query={"stream": f"commit:{sha}"}))

    def stream_of(self, found: Commit) -> str:
        return f"commit:{found.sha}"

    def stream_url(self, tail: str) -> str:
        return self.url("sha", tail)

    def detail(self, request: HttpRequest, found: Commit) -> dict[str, Any]:
        subject, _, body = found.message.partition("\n")
        return {
            "title": subject or found.sha[:10],
            "author_name": self.author_name(found),
            "body": body.strip(),
            "event": RawEvent.objects.filter(position=found.id).defer("payload_json").first(),
            "files": changed_files(found.files[:_MAX_FILES]),
            "hidden_files": max(0, len(found.files) - _MAX_FILES),
            "parts": parts_of("commit", [found.id])[found.id],
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
    shown = []
    for file in files:
        plus, minus = change_widths(file["insertions"], file["deletions"], most)
        shown.append({**file, "plus": plus, "minus": minus, "is_binary": file["insertions"] is None})
    return shown
