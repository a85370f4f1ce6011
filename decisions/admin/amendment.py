"""The page of an amendment: the text of an entry beside that of the newer one that seems to amend it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from decisions.amendments import judge_amendment
from memories.admin.base import SectionAdmin, sentence
from memories.admin.comparing import side_by_side
from memories.diff import Effort, compare
from memories.models import Amendment, AmendmentKind
from memories.schemas.links import AmendmentVerdict
from memories.search import engine
from memoryhub.core import log
from memoryhub.core.admin import cells, needs, next_page, page_of_entity
from memoryhub.core.entities import Entity, find_entities
from memoryhub.core.errors import HubError
from memoryhub.core.kinds import KINDS
from memoryhub.core.permissions import Act
from memoryhub.core.validation import command_from

_PAGE = "admin/decisions/amendment.html"
_LEADS = {
    AmendmentKind.AMENDS: "The newer entry seems to replace what the older one says.",
    AmendmentKind.CONTRADICTS: "The two entries seem to contradict each other.",
}
_SUPERSEDES = "If you accept, the newer one supersedes the older one: searches rank that last, and packs leave it out."
_DEPRECATES = "If you accept, the decision becomes deprecated, since no decision replaces it."


@admin.register(Amendment)
class AmendmentAdmin(SectionAdmin):
    ordering = ("-id",)
    detail_template = _PAGE

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_POST(needs(Act.REVIEW, self.verdict_view)))
        return [path("<int:amendment_id>/verdict/", view, name="memories_amendment_verdict"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return redirect("admin:inbox")

    def detail(self, request: HttpRequest, amendment: Amendment) -> dict[str, Any]:
        request.inbox_key = f"amendment-{amendment.pk}"  # type: ignore[attr-defined]
        kind = AmendmentKind(amendment.kind)
        ids = [amendment.older_id, amendment.newer_id]
        entities = find_entities(ids)
        documents = engine.documents_of(ids)
        texts = engine.texts_of(documents)
        bodies = _compared(*(texts.get(entity_id, "") for entity_id in ids))
        events = {event.position: event for event in log.events().at(list(entities)).defer("payload_json")}
        sides = []
        for number, entity_id in enumerate(ids):
            entity = entities.get(entity_id)
            sides.append(
                {
                    "id": entity_id,
                    "label": ("Older", "Newer")[number],
                    "title": documents[entity_id]["title"] if entity_id in documents else "",
                    "text": bodies[number],
                    "entity": entity,
                    "badge": _badge(entity) if entity else "",
                    "url": page_of_entity(entity.type, entity_id) if entity else "",
                    "event": events.get(entity_id),
                }
            )
        title = entities[amendment.newer_id].title if amendment.newer_id in entities else f"#{amendment.newer_id}"
        older, newer = (entities[entity_id].type if entity_id in entities else "" for entity_id in ids)
        effect = _DEPRECATES if (older, newer) == ("decision", "memory") else _SUPERSEDES
        lead = f"{_LEADS[kind]} {effect} If you dismiss, both stay as they are, and neither is marked."
        return {"title": title, "sides": sides, "verb": kind.label.lower(), "lead_text": lead}

    def verdict_view(self, request: HttpRequest, amendment_id: int) -> HttpResponse:
        amendment: Amendment = self.find(request, str(amendment_id))
        ends = {"newer_id": amendment.newer_id, "older_id": amendment.older_id}
        verdict = {name: request.POST.get(name, "") for name in ("verdict", "reason")}
        try:
            result = judge_amendment(command=command_from(AmendmentVerdict, ends | verdict))
        except HubError as error:
            messages.error(request, sentence(error))
            return redirect(self.url("change", amendment_id))
        outcome = "Dismissed: both stay."
        if result.is_accepted:
            outcome = f"#{amendment.newer_id} supersedes #{amendment.older_id}."
        messages.success(request, outcome)
        return redirect(next_page(request) or "admin:inbox")


def _badge(entity: Entity) -> SafeString:
    name = entity.kind or entity.type
    return cells.badge(name, KINDS[name].label if name in KINDS else name.capitalize())


# What differs is marked only between texts that have most in common
def _compared(older: str, newer: str) -> tuple[str, str]:
    effort = Effort()
    parts = list(compare(older, newer, effort))
    common = sum(_length(part.text) for part in parts)
    has_hidden = any(part.hidden_lines for part in parts)
    if has_hidden or 2 * common >= max(_length(older), _length(newer)):
        return side_by_side(older, newer, effort)
    return older, newer


def _length(text: str) -> int:
    return len("".join(text.split()))
