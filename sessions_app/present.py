"""Sessions, turns, iterations and commits as text for a model."""

from __future__ import annotations

from typing import Any

from memoryhub.core import clock
from memoryhub.core.text import compact_json, counted, flat, hanging, indented

_VERBS = {"implements": "implements", "reverts": "reverts", "relates": "relates to"}


def session_line(session: dict[str, Any]) -> str:
    if "status" not in session:
        return flat(f"#{session['id']} {session['session_id']}")
    line = (
        f"#{session['id']} session {session['session_id']} {session['status']} {clock.minute(session['started_at'])} "
        f"by {session['agent']} {session['purpose']}"
    )
    return _with_summary(line, session["summary"])


def session_text(session: dict[str, Any]) -> str:
    """Return a session with its summary, its folder, what it was begun with and its turns, the latest first."""
    lines = [session_line({**session, "summary": ""}).rstrip()]
    lines += [f"{name}: {hanging(session[name])}" for name in ("directory", "summary") if session[name]]
    if session["metadata"]:
        lines.append(f"metadata: {compact_json(session['metadata'])}")
    return "\n".join([*lines, *map(turn_line, session["turns"])])


def turn_line(turn: dict[str, Any]) -> str:
    head = f"#{turn['id']} turn {turn['turn_id']} {turn['status']} {clock.minute(turn['began_at'])}"
    line = f"{head} session={turn['session_id']} {counted(turn['event_count'], 'event')}"
    return _with_summary(line, turn["summary"])


def _with_summary(line: str, summary: str) -> str:
    return flat(f"{line}: {summary}" if summary else line)


def iteration_line(iteration: dict[str, Any]) -> str:
    line = (
        f"#{iteration['id']} {iteration['command']} {iteration['status']} {clock.minute(iteration['started_at'])} "
        f"{iteration['description']}"
    )
    if iteration["phases_completed"]:
        line += f" done: {', '.join(iteration['phases_completed'])}"
    if iteration["phase"] and iteration["status"] == "active":
        line += f" now: {iteration['phase']}"
    return flat(line)


def iteration_text(iteration: dict[str, Any]) -> str:
    lines = [iteration_line(iteration)]
    if iteration["outcome"]:
        lines.append(f"outcome: {hanging(iteration['outcome'])}")
    if iteration["artifacts"]:
        lines.append(flat(f"artifacts: {', '.join(iteration['artifacts'])}"))
    lines += map(commit_line, iteration["commits"])
    lines += [
        flat(f"#{event['position']} {clock.minute(event['occurred_at'])} {event['type']} {event['title']}")
        for event in iteration["events"]
    ]
    if iteration["left_out"]:
        lines.append(f"({iteration['left_out']} earlier events left out; raise events, or use memory_timeline)")
    return "\n".join(lines)


def changed_file(file: dict[str, Any]) -> str:
    """Return a file of a commit with its counts of lines, which git does not have where its content is absent."""
    if file["insertions"] is None:
        return str(file["path"])
    return f"{file['path']} (+{file['insertions']} -{file['deletions']})"


def commit_text(commit: dict[str, Any]) -> str:
    """Return a commit with its whole message, its decisions and its files."""
    files = map(changed_file, commit["files"])
    below = "\n".join([commit["message"], *map(flat, _decision_lines(commit)), *map(flat, files)])
    return "\n".join([commit_line({**commit, "decisions": []}), indented(below)])


def commit_line(commit: dict[str, Any]) -> str:
    if "message" not in commit:
        return f"#{commit['id']} {commit['sha'][:10]}"
    subject = commit["message"].split("\n", 1)[0]
    change = f"+{commit['insertions']} -{commit['deletions']}"
    when = clock.day(commit["committed_at"])
    head = f"#{commit['id']} {commit['sha'][:10]} {when} {commit['author']}: {subject} ({change})"
    if commit["decisions"]:
        head += f" → {'; '.join(_decision_lines(commit))}"
    return flat(head)


def _decision_lines(commit: dict[str, Any]) -> list[str]:
    return [f"{_VERBS[link['link_type']]} #{link['id']} {link['title']}" for link in commit["decisions"]]
