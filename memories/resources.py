"""Paging by offset for the ``memories://`` MCP resources. Tools and REST page by cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from memories import scopes
from memories.embeddings.meaning import model_name
from memories.embeddings.vectors import vector_of
from memories.models import Memory, MemoryScope
from memories.schemas import MemoryGet, MemoryList, MemorySearch, SearchSourceName, Tags, TypeName
from memories.search import engine
from memories.search.parsed_query import parse_search
from memories.search.pipeline import note_on, wanted_mode
from memories.selectors import filtered, get_memories, hits, listed
from memories.selectors.search import without_hidden
from memories.uses.events import Use
from memories.uses.notes import note_read
from memoryhub.core.schemas import MAX_INTEGER, Command, at_most
from memoryhub.core.stores.store import Scope, current_store
from memoryhub.core.text import shortened

# Characters of a memory's content in a search
MAX_EXCERPT = 200


class ByOffset(Command):
    memory_type: TypeName | None = None
    tags: Tags = Field(default_factory=list)
    offset: int = Field(0, ge=0, le=1_000_000)


class ListByOffset(ByOffset):
    limit: Annotated[int, at_most(100)] = Field(10, ge=1, le=MAX_INTEGER)
    include_deleted: bool = False


class SearchByOffset(ByOffset):
    query: str = Field(min_length=1, max_length=2_000)
    limit: Annotated[int, at_most(50)] = Field(5, ge=1, le=MAX_INTEGER)
    threshold: float = Field(0.0, ge=0.0, le=1.0)


def get_whole(*, command: MemoryGet) -> dict[str, Any]:
    store = current_store()
    project = store.name if store.scope is Scope.PROJECT else None
    (memory,) = get_memories(command=command)
    vector = vector_of(memory["id"])
    return {**memory, "project_id": project, "embedding": vector, "embedding_model": model_name() if vector else None}


def list_by_offset(*, command: ListByOffset) -> dict[str, Any]:
    filters = MemoryList(type=command.memory_type, tags=command.tags, include_deleted=command.include_deleted)
    matching = filtered(filters)
    total, end = matching.count(), command.offset + command.limit
    memories = list(matching.order_by("-updated_at", "-id")[command.offset : end])
    return {
        "memories": listed(memories, compact=False),
        "pagination": _pagination(command.limit, command.offset, total),
    }


def search_by_offset(*, command: SearchByOffset) -> dict[str, Any]:
    question = MemorySearch(
        query=command.query, type=command.memory_type, tags=command.tags, sources=[SearchSourceName.MEMORY]
    )
    query = parse_search(question)
    (level,) = scopes.levels(inherit=False)
    mode = wanted_mode()
    ranked = without_hidden(engine.rank(query, mode, level, others=True), level, [level])
    near = ranked.similarities()
    good = [hit for hit in ranked.hits if near[hit[0]] >= command.threshold]
    page_hits = good[command.offset : command.offset + command.limit]
    note_read(Use.FOUND, [memory_id for memory_id, _ in page_hits])
    memories = Memory.objects.in_bulk([memory_id for memory_id, _ in page_hits])
    return {
        "query": command.query,
        "memories": [
            {**hit, **_details(memories[hit["id"]])}
            for hit in hits(page_hits, MemoryScope.PROJECT, replace(ranked, factors={}))
        ],
        "pagination": _pagination(command.limit, command.offset, len(good)),
        "metadata": {
            "threshold": command.threshold,
            "mode": ranked.mode,
            "note": note_on(mode, ranked.problems),
            "embedding_model": model_name() if ranked.mode == "hybrid" else None,
        },
    }


def _details(memory: Memory) -> dict[str, Any]:
    content = shortened(memory.content, MAX_EXCERPT)
    return {"memory_type": memory.type, "tags": memory.tags, "content": content}


def _pagination(limit: int, offset: int, total: int) -> dict[str, Any]:
    return {"limit": limit, "offset": offset, "total": total, "has_more": offset + limit < total}
