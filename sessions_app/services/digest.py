"""What is known of a session, in a few lines: for a session that ends without anyone's summary."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from memoryhub.core import rows
from memoryhub.core.event_types import Speech, names_of_speech, quoted
from sessions_app.events import COMMIT_RECORDED
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED

_PROMPT_CHARS = 200
_SAID_CHARS = 600
_MAX_FILES = 8
_MAX_COMMITS = 10
_MAX_PROMPTS = 5


def digest_session(*, session_id: str, reason: str = "") -> str:
    """Return what was asked, changed, run and committed in a session, and what was said last."""
    prompts = _payloads(session_id, *names_of_speech(Speech.PROMPT))
    answers = _payloads(session_id, *names_of_speech(Speech.ANSWER))
    edits, commits = _payloads(session_id, FILE_EDITED.name), _payloads(session_id, COMMIT_RECORDED.name)
    lines = [
        _listed("Asked", [_line(prompt["content"], _PROMPT_CHARS) for prompt in prompts], _MAX_PROMPTS),
        _listed("Commits", [_commit(commit) for commit in commits], _MAX_COMMITS),
        _listed("Files edited", _by_count(edit["path"] for edit in edits), _MAX_FILES),
        _commands(session_id),
        _said(answers),
        f"Ended by the client: {reason}." if reason else "",
    ]
    return "\n".join(filter(None, lines)) or "Nothing happened in it."


def _payloads(session_id: str, *event_types: str) -> list[dict[str, Any]]:
    found = rows.fetch(
        f"SELECT payload_json FROM raw_events WHERE session_id = %s AND event_type IN ({quoted([*event_types])}) "
        "AND payload_json IS NOT NULL ORDER BY position",
        [session_id],
    )
    return [json.loads(payload) for (payload,) in found]


def _commands(session_id: str) -> str:
    sql = "SELECT count(*) FROM raw_events WHERE session_id = %s AND event_type = %s"
    count = rows.fetch(sql, [session_id, COMMAND_RUN.name])[0][0]
    return f"Commands run: {count}." if count else ""


def _said(messages: list[dict[str, Any]]) -> str:
    return f"Said last: {_line(messages[-1]['content'], _SAID_CHARS)}" if messages else ""


def _commit(payload: dict[str, Any]) -> str:
    return f"{payload['sha'][:10]} {_line(payload.get('message', ''), 100)}"


def _listed(title: str, items: list[str], most: int) -> str:
    """Return the items on one line, the latest ones where they are too many."""
    left_out = len(items) - most
    more = f" (and {left_out} before)" if left_out > 0 else ""
    return f"{title}: {'; '.join(items[-most:])}{more}." if items else ""


def _by_count(paths: Any) -> list[str]:
    """Return the paths, those that were changed most often last."""
    return [path for path, _ in reversed(Counter(paths).most_common())]


def _line(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
