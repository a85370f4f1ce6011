"""The pages of context packs: a preview of the next one, and every sent pack, composed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memories.admin import listing
from memories.admin.base import SectionAdmin, sentence
from memories.admin.comparing import word_diff
from memories.models import ContextPack
from memories.pack import preview_pack, replay_pack
from memories.pack.sections import FilledSection
from memories.pack.service import ComposedPack
from memories.schemas.query import DEFAULT_TOKENS, ContextPackRequest, ContextReplay
from memoryhub.core.admin import cells
from memoryhub.core.admin.facets import SinceFilter
from memoryhub.core.errors import HubError
from memoryhub.core.paging import estimate_tokens
from sessions_app.admin.sessions import SessionFilter

WIDTH = 1000  # of the SVG's view box
FRAME = "frame"


@dataclass(frozen=True, slots=True)
class BarPart:
    """One part of the bar, and its row in the table below."""

    name: str
    title: str
    x: float
    width: float
    tokens: int
    items: int
    left_out: int
    more: str


@dataclass(frozen=True, slots=True)
class TokenBar:
    parts: list[BarPart]
    used: int
    budget: int
    free: BarPart

    @property
    def percent(self) -> int:
        return round(100 * self.used / self.budget)


def _size(section: FilledSection) -> int:
    return estimate_tokens("\n".join(section.lines()))


def token_bar(pack: ComposedPack, budget: int) -> TokenBar:
    """Return the bar of a pack; the widths of its parts are shares of its budget."""
    used = estimate_tokens(pack.text)
    scale = WIDTH / max(budget, used)
    rows: list[dict[str, Any]] = [
        {"name": filled.section.name, "title": filled.section.title, "tokens": _size(filled)}
        | {"items": len(filled.items), "left_out": filled.left_out, "more": filled.section.more}
        for filled in pack.body.sections
    ]
    frame = used - sum(row["tokens"] for row in rows)
    rows.append(
        {"name": FRAME, "title": "Header and footer", "tokens": max(frame, 0), "items": 0, "left_out": 0, "more": ""}
    )
    parts, x = [], 0.0
    for row in rows:
        parts.append(BarPart(**row, x=round(x, 1), width=round(row["tokens"] * scale, 1)))
        x += row["tokens"] * scale
    unused = max(0, budget - used)
    free = BarPart("free", "Free", round(x, 1), round(unused * scale, 1), unused, 0, 0, "")
    return TokenBar(parts, used, budget, free)


_LATEST = 8
_OFFERED = 30
_LEAST, _MOST = 200, 20_000


class PackForm(forms.Form):
    query = forms.CharField(
        required=False,
        label="Topic",
        max_length=2_000,
        widget=forms.TextInput(attrs={"placeholder": "what the session works on; empty for the latest changes"}),
    )
    max_tokens = forms.IntegerField(required=False, label="Token budget", min_value=_LEAST, max_value=_MOST)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        self.fields["max_tokens"].widget.attrs["placeholder"] = str(DEFAULT_TOKENS)

    def command(self) -> ContextPackRequest | None:
        """Return the command, or None if the form has errors."""
        if not self.is_valid():
            return None
        typed = self.cleaned_data
        return ContextPackRequest(query=typed["query"], max_tokens=typed["max_tokens"] or DEFAULT_TOKENS)


@admin.register(ContextPack)
class ContextPackAdmin(SectionAdmin):
    list_display = ("number", "about", "sent", "tokens_bar", "items", "short_digest")
    list_display_links = ("number",)
    list_filter = (SinceFilter, SessionFilter)
    ordering = ("-id",)
    sortable_by = ("number",)
    stream_kind = "pack"
    list_title = "Sent packs"
    detail_template = "admin/memories/pack.html"
    empty_title = "No packs sent yet"
    empty_text = "Run “memory-hub setup” for your client: its hook sends one to each new session."

    def get_urls(self) -> list[URLPattern]:
        pages = [
            path("now/", self.admin_site.admin_view(self.now_view), name="memories_contextpack_now"),
            path(
                "<path:object_id>/compare/", self.admin_site.admin_view(self.compare_view), name="memories_pack_compare"
            ),
        ]
        return [*pages, *super().get_urls()]

    def now_view(self, request: HttpRequest) -> HttpResponse:
        form = PackForm(request.GET)
        command = form.command()
        context = {"title": "Context pack", "form": form}
        if command:
            context |= pack_context_of(preview_pack(command=command), command.max_tokens)
        latest = list(ContextPack.objects.order_by("-id")[:_LATEST])
        return self.page(request, "admin/memories/pack_now.html", None, **context, latest=latest)

    def detail(self, request: HttpRequest, pack: ContextPack) -> dict[str, Any]:
        earlier = ContextPack.objects.exclude(id=pack.pk).order_by("-id")[:_OFFERED]
        return {"comparable": earlier, "title": f"Pack #{pack.pk}", **_replayed(pack)}

    def compare_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        found = self.find(request, object_id)
        other_id = request.GET.get("with", "")
        other = self.find(request, other_id if other_id.isdecimal() else "0")
        first, second = sorted((found, other), key=lambda pack: pack.pk)
        context = {
            "title": f"Pack #{first.pk} → #{second.pk}",
            "first": first,
            "second": second,
            "pair": (first, second),
        }
        return self.page(request, "admin/memories/pack_compare.html", found, **{**context, **_compared(first, second)})

    @admin.display(description="#", ordering="id")
    def number(self, pack: ContextPack) -> SafeString:
        return cells.code(f"#{pack.pk}")

    @admin.display(description="sent")
    def sent(self, pack: ContextPack) -> SafeString:
        return cells.moment(pack.created_at)

    @admin.display(description="topic")
    def about(self, pack: ContextPack) -> SafeString:
        title = cells.link(self.url("change", pack.pk), pack.topic[:120], "title")
        session = format_html('<code class="id under">{}</code>', pack.session_id) if pack.session_id else ""
        return format_html("{} {}", title, session)

    @admin.display(description="tokens")
    def tokens_bar(self, pack: ContextPack) -> SafeString:
        return listing.bar(pack.tokens, pack.max_tokens)

    @admin.display(description="items")
    def items(self, pack: ContextPack) -> str:
        return cells.counted(len(pack.marks), "item")

    @admin.display(description="digest")
    def short_digest(self, pack: ContextPack) -> SafeString:
        return cells.code(pack.digest[:12])


def pack_context_of(pack: ComposedPack, budget: int) -> dict[str, Any]:
    return {"pack": pack, "bar": token_bar(pack, budget), "is_empty": not pack.body.sections}


def _replayed(sent: ContextPack) -> dict[str, Any]:
    try:
        return pack_context_of(replay_pack(command=ContextReplay(id=sent.pk)), sent.max_tokens)
    except HubError as error:
        return {"problem": sentence(error)}


def _compared(first: ContextPack, second: ContextPack) -> dict[str, Any]:
    # Items are compared by the stored marks. Texts are not stored: both packs are composed again.
    removed = sorted(_named(key) for key in set(first.marks) - set(second.marks))
    added = sorted(_named(key) for key in set(second.marks) - set(first.marks))
    changed = sorted(_named(key) for key in first.marks if first.marks[key] != second.marks.get(key, first.marks[key]))
    counts = {"removed": removed, "added": added, "changed": changed, "same": first.digest == second.digest}
    try:
        before, after = (replay_pack(command=ContextReplay(id=pack.pk)) for pack in (first, second))
    except HubError as error:
        return {**counts, "problem": sentence(error)}
    diff = word_diff(before.body.text, after.body.text)
    return {**counts, "diff": diff, "proven": before.as_sent and after.as_sent}


def _named(key: str) -> str:
    return key.rpartition(" ")[2]
