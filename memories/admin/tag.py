"""The admin of tags: those in use, the rest of the vocabulary, and the form that describes a tag."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from memories.admin.base import SectionAdmin, sentence
from memories.admin.listing import bar
from memories.models import Tag
from memories.schemas.links import CATEGORIES, FREE, TagCreate
from memories.selectors.memories import tags_in_use, view_tags
from memories.services.links import create_tag
from memoryhub.core.admin.schema_form import SchemaForm, posted
from memoryhub.core.errors import ConflictError
from memoryhub.core.kinds import KINDS
from memoryhub.core.permissions import Act, may, require

# Tags in use of a page, and unused ones of a category
_PAGE, _AT_MOST = 60, 50
_ORDERS: dict[str, dict[str, Any]] = {
    "name": {"key": lambda use: use.name},
    "used": {"key": lambda use: use.used_at, "reverse": True},
}


class TagForm(SchemaForm[TagCreate]):
    schema = TagCreate

    name = forms.CharField(required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    category = forms.CharField(
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "list": "known-categories"}),
        help_text="An existing category or a new one. Default: custom.",
    )
    description = forms.CharField(
        required=False, widget=forms.Textarea(attrs={"rows": 2}), help_text="When to use this tag."
    )

    def values(self) -> dict[str, Any]:
        return {**self.cleaned_data, "category": self.cleaned_data["category"] or FREE}


@admin.register(Tag)
class TagAdmin(SectionAdmin):
    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Act.WRITE)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        question = request.GET.get("q", "").strip().lower()[:64]
        order = request.GET.get("o", "")
        described = {tag.name: tag for tag in view_tags() if question in tag.name}
        used = [use for use in tags_in_use() if question in use.name]
        if order in _ORDERS:
            used.sort(**_ORDERS[order])
        most = max((use.memories for use in used), default=0)
        page = Paginator(used, _PAGE).get_page(request.GET.get("p"))
        used_names = {use.name for use in used}
        unused = [tag for tag in described.values() if tag.name not in used_names]
        # Custom categories come before the predefined ones
        places = {name: place for place, name in enumerate((FREE, *CATEGORIES))}
        unused.sort(key=lambda tag: (places.get(tag.category, -1), tag.category, -tag.memories, tag.name))
        groups = []
        for category, group in groupby(unused, key=attrgetter("category")):
            tags = list(group)
            groups.append({"name": category, "tags": tags[:_AT_MOST], "total": len(tags)})
        rows = []
        for use in page:
            kinds = [(kind, KINDS[kind].label, total) for kind, total in use.kinds.items()]
            rows.append({"use": use, "tag": described.get(use.name), "kinds": kinds, "bar": bar(use.memories, most)})
        context = {
            "title": "Tags",
            "page": page,
            "rows": rows,
            "unused": groups,
            "unused_total": len(unused),
            "question": question,
            "order": order if order in _ORDERS else "memories",
            "orders": (("name", "Tag"), ("memories", "Memories"), ("used", "Last used")),
        }
        return self.page(request, "admin/memories/tag/list.html", None, **context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.find(request, object_id)
        return redirect(self.url("changelist"))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        require(request.user, Act.WRITE)
        form = TagForm(posted(request), initial={"name": request.GET.get("name", "")[:64]})
        command = form.command()
        if command:
            try:
                result = create_tag(command=command)
                messages.success(request, f"Described the tag “{result.name}” in the category {result.category}.")
                return redirect(self.url("changelist"))
            except ConflictError as error:
                form.add_error("name", sentence(error))
        categories = sorted({*CATEGORIES, FREE, *Tag.objects.values_list("category", flat=True)})
        context = {"title": "Describe a tag", "form": form, "categories": categories}
        return self.page(request, "admin/memories/tag/form.html", None, **context)
