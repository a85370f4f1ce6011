"""What a client's hooks tell becomes events: sessions, turns, what happened in them, and the commits that were made."""

from __future__ import annotations

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memoryhub.config.clients import Effect
from memoryhub.config.folder import NO_FOLDER, FolderSettings, read_folder, use_folder
from memoryhub.config.project_settings import project_settings
from memoryhub.core import clock, log
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.events.event_types import Speech, names_of_speech, quoted
from memoryhub.core.origin import use_origin
from memoryhub.core.spool import Kept
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import flat
from sessions_app import git
from sessions_app.events import COMMIT_RECORDED, SESSION_RESUMED, SessionTouched
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED
from sessions_app.hook_parser import HookEvent
from sessions_app.models import Session, SessionStatus, Turn, TurnStatus
from sessions_app.schemas import CommitRecord, SessionEnd, SessionStart
from sessions_app.services.commits import record_commits
from sessions_app.services.sessions import end_session, start_session
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn

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
        _last_answer(answers),
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


def _last_answer(messages: list[dict[str, Any]]) -> str:
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


logger = logging.getLogger(__name__)

_COMMITS = re.compile(r"\bgit\b[^|;&\n]*\bcommit\b")
_MADE = re.compile(r"^\[[^\]\n]*\b([0-9a-f]{7,64})\]", re.MULTILINE)
"""What git says of a commit that it made: ``[main 1a2b3c4] Subject``."""
_JUST_NOW = timedelta(minutes=5)


def capture(*, heard: HookEvent, idempotency_key: str) -> None:
    """Record what a client told at one of its hooks; the same key again changes nothing.

    Needs an origin that names the client as its actor.
    """
    heard = replace(heard, directory=os.path.realpath(heard.directory) if heard.directory else "")
    commits = _commits(heard)
    with log.transaction(), use_origin(session_id=heard.session_id):
        if not rows.fetch("SELECT 1 FROM raw_events WHERE idempotency_key = %s", [idempotency_key]):
            _EFFECTS[heard.effect](heard, idempotency_key)
        if commits:
            _record(commits, heard)


def folder_settings_of(project: str, heard: HookEvent) -> tuple[FolderSettings, str]:
    """Return the settings in the event's folder, and why they are left out if they are invalid: the event is kept."""
    if not heard.directory.startswith("/"):
        return NO_FOLDER, ""
    try:
        return read_folder(Path(heard.directory), project), ""
    except Invalid as error:
        logger.warning("settings of a folder are left out: %s", error.message)
        return NO_FOLDER, error.message


def capture_kept(heard: HookEvent, kept: Kept) -> None:
    """Capture an event from the spool in the current store, as of the time when it happened."""
    folder, _ = folder_settings_of(current_store().name, heard)
    with clock.frozen(_happened_at(kept)), use_folder(folder), use_origin(source="hook", actor=kept.client):
        capture(heard=heard, idempotency_key=kept.id)


def _happened_at(kept: Kept) -> datetime:
    """Return when it happened: not after now, and not before the log's last event, because its times never go back."""
    last = rows.fetch("SELECT occurred_at FROM raw_events ORDER BY position DESC LIMIT 1")
    told = datetime.fromtimestamp(kept.at / 1000, UTC)
    return min(max(told, clock.from_text(last[0][0])) if last else told, clock.now())


def _start(heard: HookEvent, key: str | None) -> None:
    known: Session | None = Session.objects.filter(session_id=heard.session_id).first()
    if known is None:
        start_session(
            command=SessionStart(
                session_id=heard.session_id, directory=flat(heard.directory[:1_000]), idempotency_key=key
            )
        )
    elif known.status != SessionStatus.ACTIVE:
        draft = log.prepare(SESSION_RESUMED, SessionTouched(session_id=heard.session_id))
        log.append(draft, stream=f"session:{heard.session_id}", idempotency_key=key)


def _prompt(heard: HookEvent, key: str) -> None:
    if not heard.payload:
        return
    _go_on(heard)
    before = _open_turn(heard.session_id)
    if before:
        close_turn(before)
    _append(heard, key)


def _happen(heard: HookEvent, key: str) -> None:
    if heard.payload:
        _go_on(heard)
        _append(heard, key)


def _stop(heard: HookEvent, key: str) -> None:
    _happen(heard, key)
    turn = _open_turn(heard.session_id)
    if turn:
        close_turn(turn, idempotency_key=None if heard.payload else key)


def _end(heard: HookEvent, key: str) -> None:
    if _is_active(heard.session_id):
        summary = digest_session(session_id=heard.session_id, reason=heard.reason)
        end_session(command=SessionEnd(session_id=heard.session_id, summary=summary, idempotency_key=key))


def _ignore(_heard: HookEvent, _key: str) -> None:
    """Keep nothing."""


_EFFECTS: dict[Effect, Callable[[HookEvent, str], None]] = {
    Effect.START: _start,
    Effect.PROMPT: _prompt,
    Effect.TOOL: _happen,
    Effect.APPEND: _happen,
    Effect.STOP: _stop,
    Effect.END: _end,
    Effect.NOTHING: _ignore,
}


def _go_on(heard: HookEvent) -> None:
    """Have the session active: its start may not have been told, and a client may go on in one that has ended."""
    if not _is_active(heard.session_id):
        _start(heard, None)


def _is_active(session_id: str) -> bool:
    sql = "SELECT 1 FROM sessions_app_session WHERE session_id = %s AND status = %s"
    return bool(rows.fetch(sql, [session_id, SessionStatus.ACTIVE]))


def _open_turn(session_id: str) -> Turn | None:
    """Return the turn that the hub keeps for the session by itself, if one is open."""
    open_turns = Turn.objects.filter(session_id=session_id, status=TurnStatus.OPEN, automatic=True)
    turn: Turn | None = open_turns.order_by("-id").first()
    return turn


def _append(heard: HookEvent, key: str) -> None:
    turn = automatic_turn(session_id=heard.session_id)
    append_automatically(turn=turn, type=heard.type, payload=heard.payload, idempotency_key=key)


def _commits(heard: HookEvent) -> list[CommitRecord]:
    """Read from git the commits that a command has made."""
    command = heard.payload.get("command", "")
    if heard.type != COMMAND_RUN.name or not _COMMITS.search(command) or not project_settings().capture_commits:
        return []
    folder = Path(heard.directory)
    try:
        made = [git.read_commit(folder, sha) for sha in _MADE.findall(heard.payload.get("output", ""))]
        return [commit for commit in made if commit] or _latest(folder)
    except Unavailable:
        return []


def _latest(folder: Path) -> list[CommitRecord]:
    """Return the last commit if it was made just now: a quiet command does not say what it did, or that it failed."""
    last = git.read_commit(folder, "HEAD")
    return [last] if last and abs(clock.now() - last.committed_at) < _JUST_NOW else []


def _record(commits: list[CommitRecord], heard: HookEvent) -> None:
    turn = _open_turn(heard.session_id)
    with use_origin(turn_id=turn.turn_id if turn else ""):
        record_commits(commits=commits)
