"""Every call in the seed documents, with their older names, in the order of one story.

``$name`` in an argument is a value that an earlier call stored under that name.
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
