"""MCP tools and resources, registered on import in the order in which they are listed."""

from memories.tools import core, query, registry, tags
from memories.tools import query as context

__all__ = ["context", "core", "query", "registry", "tags"]
