"""The MCP tools of governance: importing this registers them."""

from governance.tools import staleness

__all__ = ["staleness"]
