"""The relations of one memory, in both directions."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from pydantic import ValidationError

from memories.admin.answers import sentence
from memories.admin.section import SectionAdmin
from memories.models import Memory, RelationType
from memories.references import end_id, require_ends
from memories.schemas.links import LinkStatus, RelationCreate, RelationDelete
from memories.scopes import own_scope
from memories.selectors.relations import relations_of
from memories.services.relations import create_relation, delete_relation
from memoryhub.core.admin import cells
from memoryhub.core.errors import Conflict, Gone, HubError, Invalid, NotFound
from memoryhub.core.validation import explain

_INVERSE_NAMES = {
    RelationType.APPLIES_TO: "subject of",
    RelationType.DEPENDS_ON: "needed by",
    RelationType.CONFLICTS_WITH: "conflicts with",
    RelationType.RELATED_TO: "related to",
    RelationType.SUPERSEDES: "superseded by",
    RelationType.DERIVED_FROM: "source of",
}
_PAGES = {
    "memory": "memories_memory",
    "decision": "decisions_decision",
    "session": "sessions_app_session",
    "commit": "sessions_app_commit",
}
_REFUSALS = (Conflict, Gone, Invalid, NotFound)


class RelationViews(SectionAdmin):
    def relate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        typed = {name: request.POST.get(name, "") for name in ("relation", "target")}
        try:
            result = create_relation(command=RelationCreate(source=str(memory.id), **typed))
        except ValidationError as error:
            messages.error(request, f"{_capital(explain(error))}.")
        except _REFUSALS as refusal:
            messages.error(request, sentence(refusal))
        else:
            text = f"{_name(result.relation)} {_end(result.target.id)}{result.target.title}"
            is_new = result.status is LinkStatus.CREATED
            messages.success(request, f"Added: {text}." if is_new else f"This relation already exists: {text}.")
        return self._back(memory)

    def unrelate_view(self, request: HttpRequest, object_id: str, relation: int) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        try:
            result = delete_relation(command=RelationDelete(id=relation))
        except HubError as refusal:
            if not isinstance(refusal, _REFUSALS):
                raise
            messages.error(request, sentence(refusal))
        else:
            ends = f"{_end(result.source.id)}{_name(result.relation)} {_end(result.target.id)}".strip()
            messages.success(request, f"Removed: {ends}.")
        return self._back(memory)

    def lookup_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        self.find(request, object_id)
        try:
            wanted = end_id("target", request.GET.get("target", "").strip()[:200])
            (found,) = require_ends(("target", wanted, None))
        except _REFUSALS as refusal:
            return plain_answer(sentence(refusal), is_found=False)
        return plain_answer(f"{_capital(found.kind or found.type)}: {found.title}", is_found=True)

    def _back(self, memory: Memory) -> HttpResponse:
        return redirect(f"{self.url('change', memory.id)}#relations")


def plain_answer(text: str, *, is_found: bool) -> HttpResponse:
    # "Not found" is status 200 too: browsers log a 404 as an error of the page.
    headers = {"X-Found": "yes" if is_found else "no"}
    return HttpResponse(text, content_type="text/plain; charset=utf-8", headers=headers)


def relations_shown(memory: Memory) -> dict[str, Any]:
    return {
        "relations": shown_of(memory.id),
        "relation_choices": RelationType.choices,
        "own_scope": own_scope(),
    }


def shown_of(entity_id: int) -> list[dict[str, Any]]:
    """Return the relations of an item of any type, each with the URL of its other end."""
    return [_shown(relation, entity_id) for relation in relations_of([entity_id]).get(entity_id, [])]


def _shown(relation: dict[str, Any], memory_id: int) -> dict[str, Any]:
    kind = RelationType(relation["relation"])
    is_out = relation["source"]["id"] == memory_id
    end = relation["target" if is_out else "source"]
    return {
        "id": relation["id"],
        "name": _name(kind) if is_out else _INVERSE_NAMES[kind],
        "end": end,
        "badge": cells.badge(end["kind"] or end["type"], _capital(end["kind"] or end["type"])),
        "url": _page_of(end),
        "actor": relation["actor"],
        "created_at": relation["created_at"],
    }


def _page_of(end: dict[str, Any]) -> str:
    app = _PAGES.get(end["type"])
    return reverse(f"admin:{app}_change", args=[end["id"]]) if app else ""


def _name(relation: RelationType) -> str:
    return str(relation.label).lower()


def _end(entity_id: int) -> str:
    return f"#{entity_id} " if entity_id else ""


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
