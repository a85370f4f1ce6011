"""What can be asked of memories; nothing here changes anything."""

from memories.selectors.conflicts import find_conflict, open_conflicts
from memories.selectors.disputes import conflict_text, get_conflict, list_conflicts
from memories.selectors.lists import count_by_type, filtered, list_memories, listed
from memories.selectors.memories import find_memory, get_memories, views
from memories.selectors.search import hits, search
from memories.selectors.versions import state_at, versions_of

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
    "search",
    "state_at",
    "versions_of",
    "views",
]
