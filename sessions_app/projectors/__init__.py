"""What is so, after what happened."""

from sessions_app.projectors import sessions, turns, work

__all__ = ["sessions", "turns", "work"]
