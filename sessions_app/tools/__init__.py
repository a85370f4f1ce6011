"""The MCP tools of what happened: sessions, turns, iterations and commits."""

from sessions_app.tools import iterations, sessions, turns

__all__ = ["iterations", "sessions", "turns"]
