"""The MCP tools of what happened: sessions, turns, iterations and commits."""

from sessions_app.tools import sessions, work

__all__ = ["sessions", "work"]
