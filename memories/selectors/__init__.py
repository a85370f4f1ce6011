from memories.selectors.memories import count_by_type, filtered, find_memory, get_memories, list_memories, listed, views
from memories.selectors.search import hits, search
from memories.selectors.versions import (
    conflict_text,
    find_conflict,
    get_conflict,
    list_conflicts,
    open_conflicts,
    plain_versions_of,
    state_at,
    versions_of,
)

__all__ = [
    "conflict_text",
    "count_by_type",
    "filtered",
    "find_conflict",
    "find_memory",
    "get_conflict",
    "get_memories",
    "hits",
    "list_conflicts",
    "list_memories",
    "listed",
    "open_conflicts",
    "plain_versions_of",
    "search",
    "state_at",
    "versions_of",
    "views",
]
