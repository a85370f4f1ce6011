"""Every call of the documents that the hub was conceived from, by the names and arguments of theirs, as one story.

A row is made after the one before it; ``$name`` in an argument is what an earlier row kept under that name.
"""

from __future__ import annotations

from tests.mcp.seeds.call import Call, Values
from tests.mcp.seeds.entries import GUIDELINES, KNOWLEDGE, TOOLS
from tests.mcp.seeds.links import CONTEXT, ENDS, QUERIES, SCOPES, TAGS
from tests.mcp.seeds.work import DECISIONS, MEMORIES, TURNS, WORK

STORY: list[Call] = [
    *SCOPES,
    *TOOLS,
    *GUIDELINES,
    *KNOWLEDGE,
    *TAGS,
    *QUERIES,
    *CONTEXT,
    *ENDS,
    *MEMORIES,
    *TURNS,
    *WORK,
    *DECISIONS,
]

__all__ = ["STORY", "Call", "Values"]
