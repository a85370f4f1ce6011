"""What is so, after what happened."""

from sessions_app.projectors import profile, sessions, turns, work

__all__ = ["profile", "sessions", "turns", "work"]
