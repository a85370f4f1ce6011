"""Sessions and commits as text for a model."""

from __future__ import annotations

from typing import Any


def session_line(session: dict[str, Any]) -> str:
    """Return a session as one line: id, name, state, when, what for, and what came of it."""
    if "status" not in session:
        return f"#{session['id']} {session['session_id']}"
    summary = f": {session['summary']}" if session["summary"] else ""
    return (
        f"#{session['id']} session {session['session_id']} {session['status']} {session['started_at'][:16]} "
        f"by {session['agent']} {session['purpose']}{summary}"
    )


def commit_line(commit: dict[str, Any]) -> str:
    """Return a commit as one line: id, hash, when, who, what, and how much it changed."""
    if "message" not in commit:
        return f"#{commit['id']} {commit['sha'][:10]}"
    subject = commit["message"].split("\n", 1)[0]
    change = f"+{commit['insertions']} -{commit['deletions']}"
    return (
        f"#{commit['id']} {commit['sha'][:10]} {commit['committed_at'][:10]} {commit['author']}: {subject} ({change})"
    )
