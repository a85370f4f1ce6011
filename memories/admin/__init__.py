"""The admin's pages of memories."""

from memories.admin.memory import MemoryAdmin

__all__ = ["MemoryAdmin"]
