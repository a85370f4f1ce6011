"""The admin's pages of memories."""

from memories.admin.conflict import ConflictAdmin
from memories.admin.kinds import GuidelineAdmin, KnowledgeAdmin, ObservationAdmin, ToolAdmin
from memories.admin.memory import MemoryAdmin
from memories.admin.tag import TagAdmin

__all__ = [
    "ConflictAdmin",
    "GuidelineAdmin",
    "KnowledgeAdmin",
    "MemoryAdmin",
    "ObservationAdmin",
    "TagAdmin",
    "ToolAdmin",
]
