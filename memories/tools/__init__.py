"""MCP tools and resources, registered on import in the order in which they are listed."""

from memories.kind_tools import tools as kind_tools
from memories.tools import core, query, tags
from memories.tools import query as context

__all__ = ["context", "core", "kind_tools", "query", "tags"]
