from __future__ import annotations

from typing import Any

from memories import services
from memories.pack import pack_context
from memories.query import query, query_line
from memories.schemas import ConflictResult
from memories.schemas.query import ConflictList, ConflictSettle, ContextPackRequest, MemoryQuery
from memories.selectors.versions import conflict_text, list_conflicts
from memories.tools.tags import parsed
from memoryhub.core.paging import as_lines
from memoryhub.core.tools import Answer, Resource, Tool, ToolGroup, listed, register_resources, register_tools


def pack(command: ContextPackRequest) -> Answer:
    sent = pack_context(command=command)
    return Answer(sent.text, sent.data())


def read_pack(parameters: dict[str, str]) -> dict[str, Any]:
    return pack_context(command=parsed(ContextPackRequest, parameters)).data()


register_tools(
    Tool(
        "memory_context",
        "Context pack: guidelines, decisions, facts, recent turns, conflicts.",
        ContextPackRequest,
        pack,
        records=True,
        aliases=("context_pack",),
    )
)
register_resources(
    Resource("context://pack{?max_tokens}", "context pack", "Context for the work", read_pack, records=True)
)


def ask(command: MemoryQuery) -> Answer:
    return listed(query(command=command), query_line, none="nothing matches; remove a filter, or use memory_search")


def show_conflicts(command: ConflictList) -> Answer:
    listing = list_conflicts(command=command)
    text = as_lines(listing, conflict_text, none="no conflict" if command.all else "no open conflict")
    return Answer(text, listing.model_dump(mode="json"))


def resolve(command: ConflictSettle) -> Answer:
    result = services.resolve_conflict(command=command)
    return Answer(resolved_text(result), result.model_dump(mode="json"))


def resolved_text(result: ConflictResult) -> str:
    split = f"; the earlier version is now #{result.split_id}" if result.split_id else ""
    current = f"#{result.memory_id} is now v{result.version}"
    return f"resolved conflict #{result.id} with {result.resolution}: {current}{split}"


TOOLS = [
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

register_tools(*TOOLS)
