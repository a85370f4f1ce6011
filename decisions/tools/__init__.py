"""MCP tools and resources, registered on import."""

from decisions.tools import core

__all__ = ["core"]
