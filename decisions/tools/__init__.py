"""The MCP tools and resources of what we chose: importing this registers them."""

from decisions.tools import core

__all__ = ["core"]
