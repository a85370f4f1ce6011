"""Record hook events of clients as sessions, turns, events and commits."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from memoryhub.config.clients import HookEffect
from memoryhub.config.current_settings import project_settings
from memoryhub.config.folder import NO_FOLDER, FolderSettings, read_folder, use_folder
from memoryhub.config.identity import bind_project, renamed_hint
from memoryhub.core import clock, ids, log, windows
from memoryhub.core.contributions import opening_of, recall_of
from memoryhub.core.errors import Invalid
from memoryhub.core.events.event_types import Speech, names_of_speech, quoted
from memoryhub.core.origin import AGENT_PREFIX, current_origin, use_origin
from memoryhub.core.spool import SpooledEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, project_store, use_store
from memoryhub.core.text import flat, one_line
from sessions_app.events import COMMIT_RECORDED
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED
from sessions_app.hook_parser import HookEvent, find_commits, parse_hook
from sessions_app.models import SessionStatus, Turn, TurnStatus
from sessions_app.schemas import CommitRecord, HookContext, HookDelivery, SessionEnd, SessionStart
from sessions_app.services.sessions import continue_session, end_unattended
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn
from sessions_app.services.work import follow_state_file, record_commits

_PROMPT_CHARS = 200
_ANSWER_CHARS = 600
_MAX_FILES = 8
_MAX_COMMITS = 10
_MAX_PROMPTS = 5


def digest_session(*, session_id: str, reason: str = "") -> str:
    """Return a summary of a session: prompts, commits, edited files, commands and the last answer."""
    prompts = _payloads(session_id, *names_of_speech(Speech.PROMPT))
    answers = _payloads(session_id, *names_of_speech(Speech.ANSWER))
    tops = _tops(session_id)
    edits, commits = _payloads(session_id, FILE_EDITED.name), _payloads(session_id, COMMIT_RECORDED.name)
    lines = [
        _listed("Prompts", [one_line(prompt["content"], _PROMPT_CHARS) for prompt in prompts], _MAX_PROMPTS),
        _listed("Commits", [_commit(commit) for commit in commits], _MAX_COMMITS),
        _listed("Files edited", _by_count(_in_project(edit["path"], tops) for edit in edits), _MAX_FILES),
        _commands(session_id),
        _last_answer(answers),
        f"Ended by the client: {reason}." if reason else "",
    ]
    return "\n".join(filter(None, lines)) or "No events."


def _payloads(session_id: str, *event_types: str) -> list[dict[str, Any]]:
    texts = rows.fetch(
        f"SELECT payload_json FROM raw_events WHERE session_id = %s AND event_type IN ({quoted([*event_types])}) "
        "AND payload_json IS NOT NULL ORDER BY position",
        [session_id],
    )
    return [json.loads(payload) for (payload,) in texts]


# The top of the working tree in which the session began, and the folder itself, which has a name before it if it is on
# another machine.
def _tops(session_id: str) -> list[PurePath]:
    directories = rows.fetch("SELECT directory FROM sessions_app_session WHERE session_id = %s", [session_id])
    named = directories[0][0] if directories else ""
    folder = Path(named if named.startswith("/") else named.partition(":")[2])
    if not named.startswith("/"):
        return [folder] if folder.is_absolute() else []
    trees = [above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")]
    return [*trees[:1], folder]


def _in_project(path: str, tops: list[PurePath]) -> str:
    top = next((top for top in tops if PurePath(path).is_relative_to(top)), None)
    return str(PurePath(path).relative_to(top)) if top else path


def _commands(session_id: str) -> str:
    sql = "SELECT count(*) FROM raw_events WHERE session_id = %s AND event_type = %s"
    count = rows.fetch(sql, [session_id, COMMAND_RUN.name])[0][0]
    return f"Commands run: {count}." if count else ""


def _last_answer(messages: list[dict[str, Any]]) -> str:
    return f"Last answer: {one_line(messages[-1]['content'], _ANSWER_CHARS)}" if messages else ""


def _commit(payload: dict[str, Any]) -> str:
    return f"{payload['sha'][:10]} {one_line(payload.get('message', ''), 100)}"


def _listed(title: str, items: list[str], most: int) -> str:
    left_out = len(items) - most
    more = f" (and {left_out} earlier)" if left_out > 0 else ""
    return f"{title}: {'; '.join(items[-most:])}{more}." if items else ""


# Most edited last: a long list is cut at its start.
def _by_count(paths: Any) -> list[str]:
    return [path for path, _ in reversed(Counter(paths).most_common())]


logger = logging.getLogger(__name__)


def capture(*, event: HookEvent, idempotency_key: str) -> None:
    """Record a hook event; the same idempotency key again changes nothing.

    Needs an origin whose actor is the client.
    """
    event = replace(event, directory=_real_path(event.directory), working_directory=_real_path(event.working_directory))
    record_hook(event, idempotency_key)
    # After the event, which must not wait for git: the next one may end its turn.
    record_commits_of(event, idempotency_key, _commits(event))


def _real_path(folder: str) -> str:
    return os.path.realpath(folder) if folder else ""


def record_hook(event: HookEvent, key: str) -> None:
    """Record a hook event with its folder as given; the same key again changes nothing."""
    with log.transaction(), use_origin(session_id=event.session_id):
        if not rows.fetch("SELECT 1 FROM raw_events WHERE idempotency_key = %s", [key]):
            _EFFECTS[event.effect](event, key)


def record_commits_of(event: HookEvent, key: str, commits: list[CommitRecord]) -> None:
    """Record the commits that a recorded hook event made, in its turn."""
    if commits:
        with use_origin(session_id=event.session_id, turn_id=_turn_of(key)):
            record_commits(commits=commits)


def take_event(*, event: HookEvent, client: str, project: str, idempotency_key: str) -> str:
    """Capture a hook event in its project, and return the text that the client shows to its model, if any."""
    folder, problem = folder_settings_of(project, event)
    hint = hint_for(event, project)
    with use_store(project_store(project), create=True), use_folder(folder), use_origin(source="hook", actor=client):
        capture(event=event, idempotency_key=idempotency_key)
        return f"{hint}{answer_to(event=event, project=project, problem=problem)}".rstrip()


def hint_for(event: HookEvent, project: str) -> str:
    """Return what the start of a session says of a project that its folder may have had under another name."""
    if not event.answers or event.effect is not HookEffect.START or not event.directory:
        return ""
    hint = renamed_hint(Path(event.directory), project)
    return f"Memory Hub begins the project {project}: {hint}\n\n" if hint else ""


def note_window(*, event: HookEvent, window: str) -> None:
    """Note which session a client's window is in, for the MCP server that the same window has started."""
    if not window or event.effect in (HookEffect.NOTHING, HookEffect.END):
        return
    try:
        windows.note_session(window, event.session_id)
    except OSError as error:  # such as a full disk; the event is recorded, and refusing it now would repeat it
        logger.warning("the session of window %s could not be noted: %s", window, error)


def answer_to(*, event: HookEvent, project: str, problem: str = "") -> str:
    """Return the text that the client shows to its model at a captured event; ``problem`` is one of its settings."""
    if not event.answers:
        return ""
    if event.effect is HookEffect.PROMPT:
        return recall_at_prompt(event)
    if event.directory:
        # From now on another folder of the same name is another project.
        bind_project(project, Path(event.directory))
    warning = f"Memory Hub ignores this folder's settings: {problem}\n\n" if problem else ""
    return f"{warning}{opening_of(event.session_id)}".rstrip()


def recall_at_prompt(event: HookEvent) -> str:
    """Return what is recalled for a captured prompt."""
    turn = _open_turn(event.session_id)
    with use_origin(session_id=event.session_id, turn_id=turn.turn_id if turn else ""):
        return recall_of(event.session_id, event.payload.get("content", ""))


def folder_settings_of(project: str, event: HookEvent) -> tuple[FolderSettings, str]:
    """Return the settings of the event's folder; if they are invalid, none and the reason: the event is kept."""
    if not event.directory.startswith("/"):
        return NO_FOLDER, ""
    try:
        return read_folder(Path(event.directory), project), ""
    except Invalid as error:
        logger.warning("ignoring invalid settings of a folder: %s", error.message)
        return NO_FOLDER, error.message


def capture_spooled(event: HookEvent, spooled: SpooledEvent) -> None:
    """Capture a spooled event in the current store, at the time when it happened."""
    folder, _ = folder_settings_of(current_store().name, event)
    with (
        clock.frozen(plausible_time(datetime.fromtimestamp(spooled.at / 1000, UTC))),
        use_folder(folder),
        use_origin(source="hook", actor=spooled.client),
    ):
        capture(event=event, idempotency_key=spooled.id)
    note_window(event=event, window=spooled.window)


def plausible_time(reported: datetime) -> datetime:
    """Return the time for an event: not after now, and not before the log's last, since times never decrease."""
    last = rows.fetch("SELECT occurred_at FROM raw_events ORDER BY position DESC LIMIT 1")
    return min(max(reported, clock.from_text(last[0][0])) if last else reported, clock.now())


def _start(event: HookEvent, key: str | None) -> None:
    directory = flat(event.directory[:1_000])
    continue_session(SessionStart(session_id=event.session_id, directory=directory, idempotency_key=key))


def _prompt(event: HookEvent, key: str) -> None:
    if not event.payload:
        return
    _ensure_active(event)
    previous = _open_turn(event.session_id)
    if previous:
        close_turn(previous)
    _append(event, key)


def _record_event(event: HookEvent, key: str) -> None:
    if event.payload:
        _ensure_active(event)
        _append(event, key)


def _stop(event: HookEvent, key: str) -> None:
    _record_event(event, key)
    turn = _open_turn(event.session_id)
    if turn:
        close_turn(turn, idempotency_key=None if event.payload else key)


def _end(event: HookEvent, key: str) -> None:
    if _is_active(event.session_id):
        summary = digest_session(session_id=event.session_id, reason=event.reason)
        end_unattended(command=SessionEnd(session_id=event.session_id, summary=summary, idempotency_key=key))


def _ignore(_event: HookEvent, _key: str) -> None:
    pass


_EFFECTS: dict[HookEffect, Callable[[HookEvent, str], None]] = {
    HookEffect.START: _start,
    HookEffect.PROMPT: _prompt,
    HookEffect.TOOL: _record_event,
    HookEffect.APPEND: _record_event,
    HookEffect.STOP: _stop,
    HookEffect.END: _end,
    HookEffect.NOTHING: _ignore,
}


# The start may have been missed, and a client may continue a session that has ended.
def _ensure_active(event: HookEvent) -> None:
    if not _is_active(event.session_id):
        _start(event, None)


def _is_active(session_id: str) -> bool:
    sql = "SELECT 1 FROM sessions_app_session WHERE session_id = %s AND status = %s"
    return bool(rows.fetch(sql, [session_id, SessionStatus.ACTIVE]))


def _open_turn(session_id: str) -> Turn | None:
    open_turns = Turn.objects.filter(session_id=session_id, status=TurnStatus.OPEN, automatic=True)
    turn: Turn | None = open_turns.order_by("-id").first()
    return turn


def _append(event: HookEvent, key: str) -> None:
    turn = automatic_turn(session_id=event.session_id)
    append_automatically(turn=turn, type=event.type, payload=event.payload, idempotency_key=key)
    with use_origin(turn_id=turn.turn_id):
        follow_state_file(event)


def _commits(event: HookEvent) -> list[CommitRecord]:
    return find_commits(event) if project_settings().capture_commits else []


def _turn_of(key: str) -> str:
    turns = rows.fetch("SELECT turn_id FROM raw_events WHERE idempotency_key = %s", [key])
    return str(turns[0][0]) if turns else ""


# A session's name has at most 200 characters.
_NAME_CHARS = 120


def take_delivery(*, client: str, event: str, command: HookDelivery) -> HookContext:
    """Capture a hook event that another machine sent, in the current store, and return its context.

    Needs an origin whose actor is the sender. Neither files nor folders of this machine are read: the sender has read
    the transcript and the commits.

    Raises:
        NotFound: the client or its event is unknown; the data lists the known ones.
        Invalid: the session is missing.
    """
    hook_event = _of_sender(parse_hook(client=client, event=event, data=command.data, is_remote=True))
    if hook_event.effect is HookEffect.NOTHING:
        return HookContext()
    key = command.idempotency_key or f"hook-{ids.short_id()}"
    with use_origin(source="hook"):
        with clock.frozen(plausible_time(command.happened_at)) if command.happened_at else nullcontext():
            record_hook(hook_event, key)
            record_commits_of(hook_event, key, command.commits if project_settings().capture_commits else [])
        return _context_of(hook_event)


def _context_of(event: HookEvent) -> HookContext:
    if not event.answers:
        return HookContext()
    if event.effect is HookEffect.PROMPT:
        return HookContext(context=recall_at_prompt(event))
    return HookContext(context=opening_of(event.session_id), is_pack=True)


# A folder with a name before it is no path here, so what reads a session's folder skips it. Sessions are named by their
# clients: another person's session of the same name is another session.
def _of_sender(event: HookEvent) -> HookEvent:
    actor = current_origin().actor
    sender = actor.removeprefix(AGENT_PREFIX)  # which looks like the name of a secret
    sessions = rows.fetch("SELECT agent FROM sessions_app_session WHERE session_id = %s", [event.session_id])
    is_other = bool(sessions) and _person(sessions[0][0]) != _person(actor)
    session_id = f"{event.session_id[:_NAME_CHARS]}@{_person(sender)}" if is_other else event.session_id
    folder = f"{sender}:{event.directory}" if event.directory else ""
    return replace(event, session_id=session_id, directory=folder, working_directory="")


# The actor of a person's token is `ann/laptop`.
def _person(actor: str) -> str:
    return actor.partition("/")[0]
