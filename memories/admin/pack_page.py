"""The pages of context packs: a preview of the next one, and every sent pack, composed again."""

from __future__ import annotations

from collections.abc import Iterable
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
from memories.pack.service import ComposedPack
from memories.schemas.query import DEFAULT_TOKENS, ContextPackRequest, ContextReplay
from memoryhub.core.admin import cells, since_filter
from memoryhub.core.errors import HubError
from memoryhub.core.paging import estimate_tokens
from sessions_app.admin import SessionFilter

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
    items: int = 0
    left_out: int = 0
    more: str = ""


@dataclass(frozen=True, slots=True)
class TokenBar:
    parts: list[BarPart]
    used: int
    budget: int
    free: BarPart

    @property
    def percent(self) -> int:
        return round(100 * self.used / self.budget)


def token_bar(pack: ComposedPack, budget: int) -> TokenBar:
    """Return the bar of a pack; the widths of its parts are shares of its budget."""
    used = estimate_tokens(pack.text)
    scale = WIDTH / max(budget, used)
    parts: list[BarPart] = []
    x = 0.0

    def part(name: str, title: str, tokens: int, **counts: Any) -> BarPart:
        return BarPart(name, title, round(x, 1), round(tokens * scale, 1), tokens, **counts)

    for filled in pack.body.sections:
        section = filled.section
        tokens = estimate_tokens("\n".join(filled.lines()))
        counts = {"items": len(filled.items), "left_out": filled.left_out, "more": section.more}
        parts.append(part(section.name, section.title, tokens, **counts))
        x += tokens * scale
    frame = max(0, used - sum(section.tokens for section in parts))
    parts.append(part(FRAME, "Header and footer", frame))
    x += frame * scale
    return TokenBar(parts, used, budget, free=part("free", "Free", max(0, budget - used)))


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
    list_filter = (since_filter("time", "created_at"), SessionFilter)
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
        context = {"comparable": earlier, "title": f"Pack #{pack.pk}"}
        try:
            return {**context, **pack_context_of(replay_pack(command=ContextReplay(id=pack.pk)), pack.max_tokens)}
        except HubError as error:
            return {**context, "problem": sentence(error)}

    def compare_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        pack = self.find(request, object_id)
        other_id = request.GET.get("with", "")
        other = self.find(request, other_id if other_id.isdecimal() else "0")
        first, second = sorted((pack, other), key=lambda pack: pack.pk)
        context = {
            "title": f"Pack #{first.pk} → #{second.pk}",
            "first": first,
            "second": second,
            "pair": (first, second),
            **_compared(first, second),
        }
        return self.page(request, "admin/memories/pack_compare.html", pack, **context)

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
    remarks = pack.body.remarks
    marked = [("recheck", name, text) for name, text in remarks.rechecks.items()]
    marked += [("remark", name, text) for name, text in remarks.beside.items()]
    return {"pack": pack, "bar": token_bar(pack, budget), "is_empty": not pack.body.sections, "marked": marked}


def _compared(first: ContextPack, second: ContextPack) -> dict[str, Any]:
    # Items are compared by the stored marks. Texts are not stored: both packs are composed again.
    in_both = set(first.marks) & set(second.marks)
    counts = {
        "removed": _references(set(first.marks) - in_both),
        "added": _references(set(second.marks) - in_both),
        "changed": _references(key for key in in_both if first.marks[key] != second.marks[key]),
        "same": first.digest == second.digest,
    }
    try:
        before = replay_pack(command=ContextReplay(id=first.pk))
        after = replay_pack(command=ContextReplay(id=second.pk))
    except HubError as error:
        return {**counts, "problem": sentence(error)}
    diff = word_diff(before.body.text, after.body.text)
    return {**counts, "diff": diff, "proven": before.as_sent and after.as_sent}


def _references(keys: Iterable[str]) -> list[str]:
    return sorted(key.rpartition(" ")[2] for key in keys)
