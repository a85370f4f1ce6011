"""The admin of all memories, and the pages of one memory of any kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.views.decorators.http import require_POST
from pydantic import ValidationError

from memories import services
from memories.admin import listing
from memories.admin.anchors import RECHECKED, anchors_shown, save_anchors
from memories.admin.base import refused, sentence, show_error, show_result
from memories.admin.checks import allow_posted, shown_checks
from memories.admin.comparing import change, head, history_of, sides
from memories.admin.filters import COMMON_FILTERS, KindFilter, TypeFilter
from memories.admin.forms import ChangedMemoryForm
from memories.admin.kinds import own_parts
from memories.admin.lists import FORM, MemoryListAdmin, offered
from memories.admin.rendering import render
from memories.admin.review import ReviewViews
from memories.diff import Effort
from memories.models import Memory, MemoryCitation, MemoryKind, MemoryVersion, RelationType, ReviewState
from memories.present import clause
from memories.references import end_id, require_ends
from memories.schemas import MemoryDelete, MemoryRestore, MemoryTouch, MemoryUpdate, WriteResult
from memories.schemas.links import LinkStatus, RelationCreate, RelationDelete
from memories.scopes import own_scope
from memories.selectors import open_conflicts
from memories.selectors.relations import relations_of
from memories.services.links import create_relation, delete_relation
from memories.uses.selectors import uses_of
from memories.validity.checks import memory_checks
from memories.validity.trust import trusts_of
from memoryhub.core import log
from memoryhub.core.admin import cells, needs, page_of_entity
from memoryhub.core.admin.schema_form import posted
from memoryhub.core.errors import (
    ConfirmationRequired,
    ConflictError,
    Gone,
    HubError,
    Invalid,
    NotFound,
    PreconditionFailed,
)
from memoryhub.core.kinds import KINDS, word_for
from memoryhub.core.log.quarantine import quarantined_among
from memoryhub.core.permissions import Act, require
from memoryhub.core.text import as_sentence
from memoryhub.core.validation import explain

_INVERSE_NAMES = {
    RelationType.APPLIES_TO: "subject of",
    RelationType.DEPENDS_ON: "needed by",
    RelationType.CONFLICTS_WITH: "conflicts with",
    RelationType.RELATED_TO: "related to",
    RelationType.SUPERSEDES: "superseded by",
    RelationType.DERIVED_FROM: "source of",
}
_REFUSALS = (ConflictError, Gone, Invalid, NotFound)
# On one page
_DIFFS = 10
_VERSIONS = 6
_CITING = 6


@admin.register(Memory)
class MemoryAdmin(ReviewViews, MemoryListAdmin):
    add_label = "Write a memory"
    list_display = ("number", "about", "kind_badge", "author", "updated")
    list_filter = (KindFilter, TypeFilter, *COMMON_FILTERS)
    stream_kind = "memory"
    detail_template = "admin/memories/memory/detail.html"
    empty_title = "No memories yet"
    empty_text = "Write the first one, connect an agent over MCP, or run “memory-hub import markdown” to import files."

    def get_urls(self) -> list[URLPattern]:
        def page(address: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
            wrapped = self.admin_site.admin_view(view)
            return path(f"<path:object_id>/{address}/", wrapped, name=f"memories_memory_{name}")

        pages = [
            page("edit", needs(Act.WRITE, self.edit_view), "edit"),
            page("versions/<int:version>/again", require_POST(needs(Act.WRITE, self.again_view)), "again"),
            page("versions", self.versions_view, "versions"),
            page("compare", self.compare_view, "compare"),
            page("restore", require_POST(needs(Act.WRITE, self.restore_view)), "restore"),
            page("promote", require_POST(needs(Act.WRITE, self.promote_view)), "promote"),
            page("erase", needs(Act.GOVERN, self.erase_view), "erase"),
            page("allow", require_POST(needs(Act.GOVERN, self.allow_view)), "allow"),
            page("relate", require_POST(needs(Act.WRITE, self.relate_view)), "relate"),
            page("lookup", self.lookup_view, "lookup"),
            page("anchors", require_POST(needs(Act.WRITE, self.anchors_view)), "anchors"),
            page("relations/<int:relation>/remove", require_POST(needs(Act.WRITE, self.unrelate_view)), "unrelate"),
        ]
        return [*self.review_urls(), *pages, *super().get_urls()]

    def detail(self, request: HttpRequest, memory: Memory) -> dict[str, Any]:
        versions = MemoryVersion.objects.filter(memory_id=memory.id).order_by("-version")
        trust = trusts_of([memory.id])[memory.id]
        memory.open_conflicts = open_conflicts([memory.id]).get(memory.id, [])  # type: ignore[attr-defined]
        memory.is_quarantined = memory.id in quarantined_among([memory.id])  # type: ignore[attr-defined]
        cited_by = []
        for cite in MemoryCitation.objects.filter(memory_id=memory.id).order_by("-cited_at", "-stream_id")[:_CITING]:
            kind, _, name = cite.stream_id.partition(":")
            label = f"{kind} #{name}" if name.isdecimal() else f"{kind} {name}"
            cited_by.append({"stream": cite.stream_id, "label": label, "at": cite.cited_at})
        return {
            "title": memory.title,
            "rendered": render(memory.content, KINDS[memory.kind].rendering),
            "own": own_parts(memory),
            "mark": listing.kind_and_type(memory),
            "warnings": listing.warnings(memory),
            "event": log.events().at([memory.id]).defer("payload_json").first(),
            "versions": versions[:_VERSIONS],
            "tags": cells.tag_links(memory.tags, self.url("changelist")),
            "relations": shown_of(memory.id),
            "relation_choices": RelationType.choices,
            "own_scope": own_scope(),
            "use": uses_of([memory.id])[memory.id],
            "trust": trust,
            # A person's word for this very text
            "can_accept": memory.review == ReviewState.ACCEPTED and not (memory.deleted_at or trust.accepted_by),
            "cited_by": cited_by,
            "checks": shown_checks(memory.id, memory_checks([memory.id])),
            "allow_url": reverse("admin:memories_memory_allow", args=[memory.id]),
            "marks": listing.mark_rows(listing.marks_data([memory.id]).get(memory.id, []), besides=RECHECKED),
            "anchors_url": self.url("anchors", memory.id),
            **anchors_shown(memory.id),
        }

    def page(self, request: HttpRequest, template: str, item: Any, /, **context: Any) -> TemplateResponse:
        if item is not None:
            url = reverse(f"admin:memories_{item.kind}_changelist")
            context = {"list_url": url, "list_label": KINDS[item.kind].plural, **context}
        return super().page(request, template, item, **context)

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        if memory.deleted_at and request.method != "POST":
            messages.warning(request, "This memory is deleted. Restore it before you edit it.")
            return redirect(self.url("change", memory.id))
        kind = MemoryKind(memory.kind)
        form = ChangedMemoryForm(memory, posted(request))
        command = form.command()
        context: dict[str, Any] = {"title": f"Edit #{memory.id}", "form": form}
        if command:
            try:
                return show_result(request, services.update_memory(command=command))
            except PreconditionFailed:
                memory.refresh_from_db()
                context |= _stale(form, memory)
            except HubError as error:
                show_error(form, error)
        return self.page(request, FORM, memory, **context, **offered(kind))

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        require(request.user, Act.WRITE)
        memory: Memory = self.find(request, object_id)
        if request.method != "POST":
            context = {"title": f"Delete #{memory.id}?"}
            return self.page(request, "admin/memories/memory/delete.html", memory, **context)
        command = MemoryTouch(id=memory.id, reason=request.POST.get("reason", "")[:1_000])
        return self._changed(request, memory, lambda: services.delete_memory(command=command))

    def restore_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        return self._changed(request, memory, lambda: services.restore_memory(command=MemoryTouch(id=memory.id)))

    def promote_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        command = MemoryUpdate(id=memory.id, promote=True, change_reason="promoted to the project")
        message = "Promoted to the project, as version {version}."
        return self._changed(request, memory, lambda: services.update_memory(command=command), message)

    def again_view(self, request: HttpRequest, object_id: str, version: int) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        command = MemoryRestore(id=memory.id, version=version)
        message = f"Restored version {version}, as version {{version}}."
        return self._changed(request, memory, lambda: services.restore_memory(command=command), message)

    def erase_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        problem = ""
        typed = request.POST.get("number", "").strip().removeprefix("#")
        token = None
        if request.method == "POST" and typed == str(memory.id):
            token = request.POST.get("confirm_token", "")[:64]
        elif request.method == "POST":
            problem = f"Type {memory.id}, the number of this memory, to confirm."
        try:
            reason = request.POST.get("reason", "")[:1_000]
            command = MemoryDelete(id=memory.id, permanent=True, confirm_token=token, reason=reason)
            result = services.delete_memory(command=command)
        except ConfirmationRequired as error:
            if token is not None:
                problem = "The memory has changed since you opened this page. Review it, then confirm again."
            context = {"title": f"Delete #{memory.id} permanently?", "token": error.data["confirm_token"]}
            return self.page(
                request, "admin/memories/memory/erase.html", memory, **context, problem=problem, typed=typed
            )
        except PreconditionFailed:
            messages.error(request, "Delete the memory first. Only deleted memories can be deleted permanently.")
            return redirect(self.url("change", memory.id))
        messages.success(request, f"Deleted #{result.id} permanently.")
        return redirect(self.url("changelist"))

    def _changed(
        self, request: HttpRequest, memory: Memory, change: Callable[[], WriteResult], message: str = ""
    ) -> HttpResponse:
        try:
            result = change()
        except _REFUSALS as error:
            return refused(request, error, memory.id)
        if result.version == memory.version:
            message = ""
        return show_result(request, result, message.format(version=result.version))

    def versions_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the differences between versions, newest first, ten a page."""
        memory: Memory = self.find(request, object_id)
        versions = history_of(memory)
        numbers = [version["version"] for version in versions]
        before = request.GET.get("before", "")
        if before.isdecimal():
            versions = [version for version in versions if version["version"] < int(before)]
        page_versions = versions[: _DIFFS + 1]
        effort = Effort()
        changes = [change(newer, older, effort) for newer, older in pairwise(page_versions)]
        older = changes[-1]["version"] if changes else None
        if page_versions and page_versions[-1]["version"] == 1:
            changes.append({**page_versions[-1], "first": True})
            older = None
        context = {"subtitle": "Versions", "changes": changes, "older": older, **_choice(numbers, numbers[1::-1])}
        return self.page(request, "admin/memories/memory/versions.html", memory, **context)

    def compare_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show two versions side by side, by default the last two."""
        memory: Memory = self.find(request, object_id)
        versions = {version["version"]: version for version in history_of(memory)}
        chosen = [max(memory.version - 1, 1), memory.version]
        for index, name in enumerate(("from", "to")):
            text = request.GET.get(name, "")
            if text.isdecimal():
                chosen[index] = int(text)
        for number in chosen:
            if number not in versions:
                raise NotFound(f"#{memory.id} has no version {number}; it has 1 to {memory.version}")
        pair = sides(versions[chosen[0]], versions[chosen[1]])
        context = {
            "subtitle": "Compare",
            "sides": pair,
            "heads": [head(side.version) for side in pair],
            "labels": [f"Version {number}" for number in chosen],
            "same": chosen[0] == chosen[1],
        }
        numbers = list(versions)
        return self.page(request, "admin/memories/memory/compare.html", memory, **context, **_choice(numbers, chosen))

    def allow_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        allow_posted(request, memory_checks([memory.id]))
        return redirect(f"{self.url('change', memory.id)}#checks")

    def relate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        typed = {name: request.POST.get(name, "") for name in ("relation", "target")}
        try:
            result = create_relation(command=RelationCreate(source=str(memory.id), **typed))
        except ValidationError as error:
            messages.error(request, as_sentence(explain(error)))
        except _REFUSALS as refusal:
            messages.error(request, sentence(refusal))
        else:
            text = f"{_name(result.relation)} {clause('#', result.target.id, ' ')}{result.target.title}"
            is_new = result.status is LinkStatus.CREATED
            messages.success(request, f"Added: {text}." if is_new else f"This relation already exists: {text}.")
        return self._back(memory)

    def unrelate_view(self, request: HttpRequest, object_id: str, relation: int) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        try:
            result = delete_relation(command=RelationDelete(id=relation))
        except _REFUSALS as refusal:
            messages.error(request, sentence(refusal))
        else:
            source = clause("#", result.source.id, " ")
            ends = f"{source}{_name(result.relation)} {clause('#', result.target.id)}".strip()
            messages.success(request, f"Removed: {ends}.")
        return self._back(memory)

    def anchors_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        memory: Memory = self.find(request, object_id)
        save_anchors(request, memory.id)
        return redirect(f"{self.url('change', memory.id)}#anchors")

    def lookup_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        self.find(request, object_id)
        try:
            target_id = end_id("target", request.GET.get("target", "").strip()[:200])
            (entity,) = require_ends(("target", target_id, None))
        except _REFUSALS as refusal:
            return plain_answer(sentence(refusal), is_found=False)
        return plain_answer(f"{capfirst(word_for(entity.kind) or entity.type)}: {entity.title}", is_found=True)

    def _back(self, memory: Memory) -> HttpResponse:
        return redirect(f"{self.url('change', memory.id)}#relations")


def _stale(form: ChangedMemoryForm, memory: Memory) -> dict[str, Any]:
    read = form.cleaned_data["base_version"]
    versions = {version["version"]: version for version in history_of(memory)}
    latest = versions[memory.version]
    form.rebase(memory.version)
    return {
        "stale": {"read": read, "next": memory.version + 1, "latest": latest},
        "current": memory,
        "changed": change(latest, versions.get(read, latest)),
    }


def _choice(numbers: list[int], chosen: list[int]) -> dict[str, Any]:
    return {"numbers": numbers, "from_version": chosen[0], "to_version": chosen[-1]}


def plain_answer(text: str, *, is_found: bool) -> HttpResponse:
    # "Not found" is status 200 too: browsers log a 404 as an error of the page.
    headers = {"X-Found": "yes" if is_found else "no"}
    return HttpResponse(text, content_type="text/plain; charset=utf-8", headers=headers)


def shown_of(entity_id: int) -> list[dict[str, Any]]:
    """Return the relations of an item of any type, each with the URL of its other end."""
    relations = []
    for relation in relations_of([entity_id]).get(entity_id, []):
        kind = RelationType(relation["relation"])
        is_out = relation["source"]["id"] == entity_id
        end = relation["target" if is_out else "source"]
        relations.append(
            {
                "id": relation["id"],
                "name": _name(kind) if is_out else _INVERSE_NAMES[kind],
                "end": end,
                "badge": cells.badge(end["kind"] or end["type"], capfirst(end["kind"] or end["type"])),
                "url": page_of_entity(end["type"], end["id"]) if end["id"] else "",
                "actor": relation["actor"],
                "created_at": relation["created_at"],
            }
        )
    return relations


def _name(relation: RelationType) -> str:
    return str(relation.label).lower()
