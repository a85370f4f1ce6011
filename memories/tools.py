"""MCP tools and resources. They are listed in the order in which they are registered."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field

from memories import kind_tools, scopes, selectors, services, timeline
from memories.embeddings.meaning import model_name
from memories.embeddings.vectors import vector_of
from memories.models import Memory, MemoryScope
from memories.pack import pack_context
from memories.present import (
    clause,
    hit_line,
    memory_line,
    memory_text,
    relation_line,
    relation_text,
    tag_line,
    tag_text,
    tags_changed_text,
    written,
)
from memories.query import query, query_line
from memories.schemas import (
    ConflictResult,
    MemoryDelete,
    MemoryGet,
    MemoryList,
    MemoryRestore,
    MemorySearch,
    MemoryUpdate,
    MemoryWrite,
    SearchSourceName,
    Stats,
    Tags,
    Timeline,
    TypeName,
)
from memories.schemas.links import (
    RelationCreate,
    RelationDelete,
    RelationList,
    TagAttach,
    TagCreate,
    TagDetach,
    TagList,
)
from memories.schemas.query import ConflictList, ConflictSettle, ContextPackRequest, MemoryQuery
from memories.search import engine
from memories.search.parsed_query import parse_search
from memories.search.relevance import is_absent
from memories.search.weights import note_on
from memories.selectors.memories import suggest_ids, suggest_tags, suggest_types
from memories.selectors.search import without_hidden
from memories.selectors.versions import conflict_text, list_conflicts
from memories.services import links
from memories.uses.events import Use
from memories.uses.notes import note_read
from memoryhub.config.current_settings import project_settings
from memoryhub.core.paging import as_lines
from memoryhub.core.schemas import MAX_INTEGER, Command, at_most
from memoryhub.core.stores.store import Scope, current_store
from memoryhub.core.text import shortened
from memoryhub.core.tools import Answer, Resource, Tool, ToolGroup, fitted, listed, register_resources, register_tools
from memoryhub.core.validation import command_from


def _answer(text: str, result: BaseModel) -> Answer:
    return Answer(text, result.model_dump(mode="json"))


_NO_HIT = "nothing found; try fewer or other words"
_ENTRY = {"entry_id": "id", "memory_id": "id", "tag": "tags", "tag_id": "tags", "tag_name": "tags"}
_ENDS = {"source_id": "source", "target_id": "target", "relation_type": "relation"}
_RELATED = {**_ENDS, "created_by": "author"}


def create_tag(command: TagCreate) -> Answer:
    result = links.create_tag(command=command)
    return _answer(tag_text(result), result)


def list_tags(command: TagList) -> Answer:
    return listed(selectors.memories.list_tags(command=command), tag_line, none="no tag matches")


def attach_tags(command: TagAttach) -> Answer:
    result = links.attach_tags(command=command)
    return _answer(tags_changed_text(result, "attached"), result)


def detach_tags(command: TagDetach) -> Answer:
    result = links.detach_tags(command=command)
    return _answer(tags_changed_text(result, "detached"), result)


def create_relation(command: RelationCreate) -> Answer:
    result = links.create_relation(command=command)
    return _answer(relation_text(result), result)


def list_relations(command: RelationList) -> Answer:
    return listed(selectors.relations.list_relations(command=command), relation_line, none="no relation matches")


def delete_relation(command: RelationDelete) -> Answer:
    result = links.delete_relation(command=command)
    return _answer(relation_text(result), result)


LINK_TOOLS = [
    Tool(
        "tag_create",
        "Describe a tag. Tags can be used without.",
        TagCreate,
        create_tag,
        group=ToolGroup.TAGS,
        writes=True,
        full_name="memory_tag_create",
    ),
    Tool(
        "tag_list",
        "List tags with category and number of memories.",
        TagList,
        list_tags,
        group=ToolGroup.TAGS,
        full_name="memory_tag_list",
        renamed={"entry_id": "id", "memory_id": "id"},
    ),
    Tool(
        "tag_attach",
        "Attach tags to a memory or the project, as a new version.",
        TagAttach,
        attach_tags,
        group=ToolGroup.TAGS,
        writes=True,
        idempotent=True,
        full_name="memory_tag_attach",
        renamed=_ENTRY,
    ),
    Tool(
        "tag_detach",
        "Detach tags from a memory or the project, as a new version.",
        TagDetach,
        detach_tags,
        group=ToolGroup.TAGS,
        writes=True,
        idempotent=True,
        full_name="memory_tag_detach",
        renamed=_ENTRY,
    ),
    Tool(
        "relation_create",
        "Relate two memories, decisions, commits, sessions, or the project.",
        RelationCreate,
        create_relation,
        group=ToolGroup.TAGS,
        writes=True,
        idempotent=True,
        full_name="memory_relation_create",
        renamed=_RELATED,
    ),
    Tool(
        "relation_list",
        "List relations, of one thing or all.",
        RelationList,
        list_relations,
        group=ToolGroup.TAGS,
        full_name="memory_relation_list",
        renamed={"entry_id": "id", **_ENDS},
    ),
    Tool(
        "relation_delete",
        "Delete a relation.",
        RelationDelete,
        delete_relation,
        group=ToolGroup.TAGS,
        writes=True,
        full_name="memory_relation_delete",
        renamed={"relation_id": "id", **_ENDS},
    ),
]


def search(command: MemorySearch) -> Answer:
    return listed(selectors.search(command=command), hit_line, none=_NO_HIT)


def search_text(command: MemorySearch) -> str:
    # The text doesn't show the parts of the scores, so they aren't computed.
    return as_lines(selectors.search(command=command, explained=False), hit_line, none=_NO_HIT)


def get(command: MemoryGet) -> Answer:
    return fitted(selectors.get_memories(command=command), command.max_tokens, memory_text)


def write(command: MemoryWrite) -> Answer:
    return written(services.write_memory(command=command))


def update(command: MemoryUpdate) -> Answer:
    return written(services.update_memory(command=command))


def delete(command: MemoryDelete) -> Answer:
    return written(services.delete_memory(command=command))


def restore(command: MemoryRestore) -> Answer:
    return written(services.restore_memory(command=command))


def list_memories(command: MemoryList) -> Answer:
    return listed(selectors.list_memories(command=command), memory_line, none="no memory matches")


def show_timeline(command: Timeline) -> Answer:
    events = timeline.timeline(command=command)
    return Answer("\n".join(map(timeline.timeline_line, events)) or "no events yet", {"results": events})


def show_stats(command: Stats) -> Answer:
    figures = timeline.stats(command=command)
    lines = [f"{name}: {value}" for name, value in figures.items()]
    return Answer("\n".join(lines), figures)


MEMORY_TOOLS = [
    Tool(
        "memory_search",
        "Search everything stored with a question in plain words.",
        MemorySearch,
        search,
        in_words=search_text,
    ),
    Tool("memory_get", "Get whole memories by id or exact name.", MemoryGet, get),
    Tool(
        "memory_write",
        "Save a memory. With a topic_key, revise the memory of that topic.",
        MemoryWrite,
        write,
        writes=True,
        full_name="write_memory",
        renamed={"memory_type": "type"},
    ),
    Tool(
        "memory_update",
        "Update parts of a memory. Send the base_version you read.",
        MemoryUpdate,
        update,
        writes=True,
        full_name="update_memory",
        renamed={"memory_type": "type"},
    ),
    Tool(
        "memory_delete",
        "Delete a memory; memory_restore undoes it. permanent=true erases a deleted one.",
        MemoryDelete,
        delete,
        writes=True,
        destructive=True,
        full_name="delete_memory",
    ),
    Tool(
        "memory_restore",
        "Restore a deleted memory, or an earlier version as a new one.",
        MemoryRestore,
        restore,
        group=ToolGroup.WORK,
        writes=True,
    ),
    Tool("memory_list", "List memories, last changed first.", MemoryList, list_memories, group=ToolGroup.WORK),
    Tool(
        "memory_stats",
        "Counts, sizes, search mode and health of this project.",
        Stats,
        show_stats,
        group=ToolGroup.WORK,
    ),
    Tool(
        "memory_timeline",
        "Events around an id or a time.",
        Timeline,
        show_timeline,
        group=ToolGroup.WORK,
        full_name="memory_get_timeline",
    ),
]


def pack(command: ContextPackRequest) -> Answer:
    sent = pack_context(command=command)
    return Answer(sent.text, sent.data())


def read_pack(parameters: dict[str, str]) -> dict[str, Any]:
    return pack_context(command=command_from(ContextPackRequest, parameters)).data()


def ask(command: MemoryQuery) -> Answer:
    return listed(query(command=command), query_line, none="nothing matches; remove a filter, or use memory_search")


def show_conflicts(command: ConflictList) -> Answer:
    listing = list_conflicts(command=command)
    text = as_lines(listing, conflict_text, none="no conflict" if command.all else "no open conflict")
    return _answer(text, listing)


def resolve(command: ConflictSettle) -> Answer:
    result = services.resolve_conflict(command=command)
    return _answer(resolved_text(result), result)


def resolved_text(result: ConflictResult) -> str:
    split = clause("; the earlier version is now #", result.split_id)
    current = f"#{result.memory_id} is now v{result.version}"
    return f"resolved conflict #{result.id} with {result.resolution}: {current}{split}"


QUERY_TOOLS = [
    Tool(
        "memory_context",
        "Context pack: guidelines, decisions, facts, recent turns, conflicts.",
        ContextPackRequest,
        pack,
        records=True,
        aliases=("context_pack",),
    ),
    Tool(
        "memory_query",
        "Query by kind, scope, tags, words and relations; ranked, with the parts of each score.",
        MemoryQuery,
        ask,
        group=ToolGroup.QUERY,
    ),
    Tool(
        "memory_conflicts",
        "List conflicts between versions written concurrently, with author, time and difference.",
        ConflictList,
        show_conflicts,
        group=ToolGroup.QUERY,
    ),
    Tool(
        "memory_conflict_resolve",
        "Resolve a conflict between two versions.",
        ConflictSettle,
        resolve,
        group=ToolGroup.QUERY,
        writes=True,
        renamed={"conflict_id": "id"},
    ),
]


# Resources page by offset; tools and REST page by cursor.
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
    (memory,) = selectors.get_memories(command=command)
    store = current_store()
    memory["project_id"] = store.name if store.scope is Scope.PROJECT else None
    memory["embedding"] = vector_of(memory["id"])
    memory["embedding_model"] = model_name() if memory["embedding"] else None
    return memory


def read_list(parameters: dict[str, str]) -> dict[str, Any]:
    command = command_from(ListByOffset, _with_tags(parameters))
    filters = MemoryList(type=command.memory_type, tags=command.tags, include_deleted=command.include_deleted)
    matching = selectors.filtered(filters)
    end = command.offset + command.limit
    memories = list(matching.order_by("-updated_at", "-id")[command.offset : end])
    return {
        "memories": selectors.listed(memories),
        "pagination": _pagination(command.limit, command.offset, matching.count()),
    }


def search_by_offset(*, command: SearchByOffset) -> dict[str, Any]:
    question = MemorySearch(
        query=command.query, type=command.memory_type, tags=command.tags, sources=[SearchSourceName.MEMORY]
    )
    query = parse_search(question)
    (level,) = scopes.levels(inherit=False)
    mode = project_settings().search_mode
    ranked = without_hidden(engine.rank(query, mode, level, blended=True), level, [level])
    near = ranked.similarities(list(dict(ranked.hits)))
    good = [hit for hit in ranked.hits if near[hit[0]] >= command.threshold]
    page_hits = good[command.offset : command.offset + command.limit]
    ids = [memory_id for memory_id, _ in page_hits]
    note_read(Use.FOUND, ids)
    memories = Memory.objects.in_bulk(ids)
    items = selectors.hits(page_hits, MemoryScope.PROJECT, replace(ranked, factors={}))
    for item in items:
        memory = memories[item["id"]]
        content = shortened(memory.content, MAX_EXCERPT)
        item |= {"memory_type": memory.type, "tags": memory.tags, "content": content}
    return {
        "query": command.query,
        "memories": items,
        "pagination": _pagination(command.limit, command.offset, len(good)),
        "metadata": {
            "threshold": command.threshold,
            "mode": ranked.mode,
            "note": note_on(mode, ranked.problems),
            "absent": is_absent(command.query, [(level.store, ranked)]),
            "embedding_model": model_name() if ranked.mode == "hybrid" else None,
        },
    }


def _pagination(limit: int, offset: int, total: int) -> dict[str, Any]:
    return {"limit": limit, "offset": offset, "total": total, "has_more": offset + limit < total}


def read_memory(parameters: dict[str, str]) -> dict[str, Any]:
    return get_whole(command=command_from(MemoryGet, {"ids": [parameters["id"]]}))


def read_search(parameters: dict[str, str]) -> dict[str, Any]:
    return search_by_offset(command=command_from(SearchByOffset, _with_tags(parameters)))


def _with_tags(parameters: dict[str, str]) -> dict[str, Any]:
    return {**parameters, "tags": list(filter(None, parameters.get("tags", "").split(",")))}


_SUGGEST = {"tags": suggest_tags, "memory_type": suggest_types}
RESOURCES = [
    Resource("memories://get/{id}", "memory", "One memory by its id", read_memory, suggest={"id": suggest_ids}),
    Resource(
        "memories://list{?memory_type,tags,limit,offset,include_deleted}",
        "memories",
        "Memories, last changed first; tags separated by commas",
        read_list,
        suggest=_SUGGEST,
    ),
    Resource(
        "memories://search/{query}{?limit,offset,memory_type,tags,threshold}",
        "memory search",
        "Memories that match a question; threshold: minimum similarity_score, 0 to 1",
        read_search,
        suggest=_SUGGEST,
    ),
    Resource("context://pack{?max_tokens}", "context pack", "Context for the work", read_pack, records=True),
]

register_tools(*LINK_TOOLS, *MEMORY_TOOLS, *QUERY_TOOLS, *kind_tools.TOOLS)
register_resources(*RESOURCES)
