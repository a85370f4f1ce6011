"""The MCP tools of what happened: sessions, turns, iterations and commits."""

from sessions_app.tools import audit, commits, iterations, sessions, turns

__all__ = ["audit", "commits", "iterations", "sessions", "turns"]
