"""The admin's pages of memories."""

from memories.admin.conflict import ConflictAdmin
from memories.admin.kinds import KindAdmin
from memories.admin.memory import MemoryAdmin
from memories.admin.pack_page import ContextPackAdmin
from memories.admin.search_page import SearchAdmin
from memories.admin.tag import TagAdmin

__all__ = ["ConflictAdmin", "ContextPackAdmin", "KindAdmin", "MemoryAdmin", "SearchAdmin", "TagAdmin"]
