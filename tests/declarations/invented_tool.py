"""A tool that exists in tests only."""

from __future__ import annotations

from memories.models import Memory
from memoryhub.core.schemas import Command
from memoryhub.core.tools import Answer, Tool, ToolGroup, register_tools


class MemoryCount(Command):
    """Count the memories of this project."""


def count_memories(_: MemoryCount) -> Answer:
    count = Memory.objects.count()
    return Answer(f"memories: {count}", {"memories": count})


register_tools(
    Tool("memory_count", "Count this project's memories.", MemoryCount, count_memories, group=ToolGroup.WORK)
)
