"""The lists of each kind of memory, each with the columns and filters that matter for it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from memories.admin.filters import (
    CategoryFilter,
    ConflictFilter,
    DeletedFilter,
    ScopeFilter,
    SessionFilter,
    TagFilter,
    TypeFilter,
    UpdatedFilter,
    ValidityFilter,
)
from memories.admin.lists import MemoryListAdmin
from memories.admin.review_lists import ReviewFilter
from memories.admin.uses import UseFilter
from memories.models import Guideline, Knowledge, MemoryKind, Observation, Tool

_COMMON = (ReviewFilter, DeletedFilter, ConflictFilter, UseFilter, ScopeFilter, UpdatedFilter, TagFilter, SessionFilter)


class KindAdmin(MemoryListAdmin):
    """One kind: its list and its form. The page of each memory is that of all memories."""

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the memory's page."""
        return redirect("admin:memories_memory_change", self.find(request, object_id).pk)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the memory's events."""
        return redirect("admin:memories_memory_history", self.find(request, object_id).pk)


@admin.register(Observation)
class ObservationAdmin(KindAdmin):
    """What was seen or learnt."""

    kind = MemoryKind.OBSERVATION
    add_label = "Write an observation"
    list_display = ("number", "about", "type_badge", "revision", "author", "updated", "seen")
    list_filter = (TypeFilter, *_COMMON)
    empty_title = "No observation here"
    empty_text = "What agents see and learn while they work comes here: notes, tasks, references, conversations."


@admin.register(Guideline)
class GuidelineAdmin(KindAdmin):
    """Rules to follow."""

    kind = MemoryKind.GUIDELINE
    add_label = "Write a guideline"
    ordering = ("-priority", "-updated_at")
    list_display = ("number", "about", "category", "priority_bar", "revision", "updated")
    list_filter = (CategoryFilter, *_COMMON)
    empty_title = "No guideline here"
    empty_text = "Write down how things are done here; agents are given the most important ones when a session starts."


@admin.register(Tool)
class ToolAdmin(KindAdmin):
    """Tools that agents can use."""

    kind = MemoryKind.TOOL
    add_label = "Describe a tool"
    list_display = ("number", "about", "category", "revision", "author", "updated")
    list_filter = (CategoryFilter, *_COMMON)
    empty_title = "No tool here"
    empty_text = "Describe a command, a function or a service that agents may use: what it takes, and when to use it."


@admin.register(Knowledge)
class KnowledgeAdmin(KindAdmin):
    """Facts, with how certain they are and for how long they hold."""

    kind = MemoryKind.KNOWLEDGE
    add_label = "Write down a fact"
    nouns = ("piece of knowledge", "pieces of knowledge")
    list_display = ("number", "about", "category", "confidence_bar", "validity", "revision", "updated")
    list_filter = (CategoryFilter, ValidityFilter, *_COMMON)
    empty_title = "No knowledge here"
    empty_text = "Write down what is known: a fact, a decision, the context of the project, where to look things up."
