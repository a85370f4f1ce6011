"""The MCP tools and resources of memories: importing this registers them, in the order in which they are listed."""

from memories.tools import context, core, query, registry, tags

__all__ = ["context", "core", "query", "registry", "tags"]
