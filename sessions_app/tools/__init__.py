"""MCP tools, registered on import in the order in which they are listed."""

from sessions_app.tools import sessions, work

__all__ = ["sessions", "work"]
