"""The MCP tools of what happened: sessions, turns, iterations and commits."""

from sessions_app.tools import commits, iterations, sessions, turns

__all__ = ["commits", "iterations", "sessions", "turns"]
