from __future__ import annotations

from typing import Any

from memories import resources, selectors, services, timeline
from memories.present import hit_line, memory_line, memory_text, write_text
from memories.schemas import (
    MemoryDelete,
    MemoryGet,
    MemoryList,
    MemoryRestore,
    MemorySearch,
    MemoryUpdate,
    MemoryWrite,
    Stats,
    Timeline,
    WriteResult,
)
from memories.selectors.memories import suggest_ids, suggest_tags, suggest_types
from memories.tools.tags import parsed
from memoryhub.core.paging import as_lines
from memoryhub.core.tools import Answer, Resource, Tool, ToolGroup, fitted, listed, register_resources, register_tools


def _written(result: WriteResult) -> Answer:
    return Answer(write_text(result), result.model_dump(mode="json"))


def search(command: MemorySearch) -> Answer:
    return listed(selectors.search(command=command), hit_line, none=_NOTHING)


def search_text(command: MemorySearch) -> str:
    # The text doesn't show the parts of the scores, so they aren't computed.
    return as_lines(selectors.search(command=command, explained=False), hit_line, none=_NOTHING)


_NOTHING = "nothing found; try fewer or other words"


def get(command: MemoryGet) -> Answer:
    return fitted(selectors.get_memories(command=command), command.max_tokens, memory_text)


def write(command: MemoryWrite) -> Answer:
    return _written(services.write_memory(command=command))


def update(command: MemoryUpdate) -> Answer:
    return _written(services.update_memory(command=command))


def delete(command: MemoryDelete) -> Answer:
    return _written(services.delete_memory(command=command))


def restore(command: MemoryRestore) -> Answer:
    return _written(services.restore_memory(command=command))


def list_memories(command: MemoryList) -> Answer:
    return listed(selectors.list_memories(command=command), memory_line, none="no memory matches")


def show_timeline(command: Timeline) -> Answer:
    events = timeline.timeline(command=command)
    return Answer("\n".join(map(timeline.timeline_line, events)) or "no events yet", {"results": events})


def show_stats(command: Stats) -> Answer:
    figures = timeline.stats(command=command)
    lines = [f"{name}: {value}" for name, value in figures.items()]
    return Answer("\n".join(lines), figures)


TOOLS = [
    Tool(
        "memory_search",
        "Search memories, decisions, commits, sessions and messages with a question in plain words.",
        MemorySearch,
        search,
        in_words=search_text,
    ),
    Tool(
        "memory_get",
        "Get whole memories by id or exact name.",
        MemoryGet,
        get,
    ),
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
    Tool(
        "memory_list",
        "List memories, last changed first.",
        MemoryList,
        list_memories,
        group=ToolGroup.WORK,
    ),
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


def read_memory(parameters: dict[str, str]) -> dict[str, Any]:
    return resources.get_whole(command=parsed(MemoryGet, {"ids": [parameters["id"]]}))


def read_list(parameters: dict[str, str]) -> dict[str, Any]:
    return resources.list_by_offset(command=parsed(resources.ListByOffset, _with_tags(parameters)))


def read_search(parameters: dict[str, str]) -> dict[str, Any]:
    return resources.search_by_offset(command=parsed(resources.SearchByOffset, _with_tags(parameters)))


def _with_tags(parameters: dict[str, str]) -> dict[str, Any]:
    tags = [tag for tag in parameters.get("tags", "").split(",") if tag]
    return {**parameters, "tags": tags}


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
]

register_tools(*TOOLS)
register_resources(*RESOURCES)
