from memories.selectors.memories import count_by_type, filtered, get_memories, list_memories, listed
from memories.selectors.search import hits, search
from memories.selectors.versions import open_conflicts, plain_versions_of, versions_of
