"""Record hook events of clients as sessions, turns, events and commits."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePath

from django.db.models import QuerySet

from memoryhub.config.current_settings import NO_FOLDER, FolderSettings, project_settings, read_folder, use_folder
from memoryhub.config.hook_table import ASK, NOTE, PACK, RECALL, STATUS, HookEffect
from memoryhub.config.identity import bind_project, renamed_hint
from memoryhub.core import clock, ids, log, windows
from memoryhub.core.contributions import (
    PlannedAction,
    close_session,
    first_offer,
    note_of,
    opening_of,
    recall_of,
    status_of,
)
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.events.event_types import Speech, names_of_speech
from memoryhub.core.origin import AGENT_PREFIX, current_origin, use_origin
from memoryhub.core.spool import SpooledEvent
from memoryhub.core.stores.store import current_store, list_projects, project_store, use_store
from memoryhub.core.text import flat, one_line
from sessions_app.events import COMMIT_RECORDED
from sessions_app.events.client import COMMAND_RUN, CONTEXT_COMPACTED, FILE_EDITED, client_events
from sessions_app.hook_parser import HookEvent, find_commits, parse_hook
from sessions_app.models import Session, SessionStatus, Turn, TurnStatus
from sessions_app.schemas import CommitRecord, HookContext, HookDelivery, SessionEnd, SessionStart
from sessions_app.selectors import read_events
from sessions_app.services.sessions import close_after_commit, continue_session, end_unattended
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn
from sessions_app.services.work import follow_state_file, record_commits

logger = logging.getLogger(__name__)

_PROMPT_CHARS = 200
_ANSWER_CHARS = 600
_MAX_FILES = 8
_MAX_COMMITS = 10
_MAX_PROMPTS = 5


def digest_session(*, session_id: str, reason: str = "") -> str:
    """Return a summary of a session: prompts, commits, edited files, commands and the last answer."""
    events = log.events().of_session(session_id)
    prompts = [event.payload["content"] for event in read_events(events.of_type(*names_of_speech(Speech.PROMPT)))]
    last_answers = list(read_events(events.of_type(*names_of_speech(Speech.ANSWER)).order_by("-position"), 1))
    commits = [event.payload for event in read_events(events.of_type(COMMIT_RECORDED))]
    commands = events.of_type(COMMAND_RUN).count()
    lines = [
        _digest_line("Prompts", [one_line(prompt, _PROMPT_CHARS) for prompt in prompts], _MAX_PROMPTS),
        _digest_line(
            "Commits",
            [f"{commit['sha'][:10]} {one_line(commit.get('message', ''), 100)}" for commit in commits],
            _MAX_COMMITS,
        ),
        _digest_line("Files edited", _edited_files(session_id), _MAX_FILES),
    ]
    if commands:
        lines.append(f"Commands run: {commands}.")
    for answer in last_answers:
        lines.append(f"Last answer: {one_line(answer.payload['content'], _ANSWER_CHARS)}")
    if reason:
        lines.append(f"Ended by the client: {reason}.")
    return "\n".join(filter(None, lines)) or "No events."


# Most edited last: a long list is cut at its start.
def _edited_files(session_id: str) -> list[str]:
    directory = Session.objects.filter(session_id=session_id).values_list("directory", flat=True).first() or ""
    tops = project_folders(directory)
    edits = read_events(log.events().of_session(session_id).of_type(FILE_EDITED))
    counts = Counter(within_folders(edit.payload["path"], tops) for edit in edits)
    return [path for path, _ in reversed(counts.most_common())]


def project_folders(directory: str) -> list[PurePath]:
    """Return the top of the working tree in which a session began, and the folder itself, also of another machine."""
    if not directory.startswith("/"):
        folder = PurePath(directory.partition(":")[2])
        return [folder] if folder.is_absolute() else []
    folder = Path(directory)
    for above in (folder, *folder.parents):
        if os.path.lexists(above / ".git"):
            return [above, folder]
    return [folder]


def path_in_project(path: str, directory: str) -> str:
    """Return a path from the top of the working tree, or from the folder, in which a session began, if it is there."""
    return within_folders(path, project_folders(directory))


def within_folders(path: str, tops: list[PurePath]) -> str:
    """Return a path as seen from the first of the folders that it is in; any other as it is."""
    for top in tops:
        if PurePath(path).is_relative_to(top):
            return str(PurePath(path).relative_to(top))
    return path


def _digest_line(title: str, items: list[str], most: int) -> str:
    if not items:
        return ""
    omitted = ""
    if len(items) > most:
        omitted = f" (and {len(items) - most} earlier)"
    return f"{title}: {'; '.join(items[-most:])}{omitted}."


def capture(*, event: HookEvent, idempotency_key: str) -> None:
    """Record a hook event; the same idempotency key again changes nothing.

    Needs an origin whose actor is the client.
    """
    folders = {name: getattr(event, name) for name in ("directory", "working_directory")}
    event = replace(event, **{name: os.path.realpath(folder) for name, folder in folders.items() if folder})
    record_hook(event, idempotency_key)
    # After the event, which must not wait for git: the next one may end its turn.
    if project_settings().capture_commits:
        record_commits_of(event, idempotency_key, find_commits(event))


def record_hook(event: HookEvent, key: str) -> None:
    """Record a hook event with its folder as given; the same key again changes nothing."""
    with log.transaction(), use_origin(session_id=event.session_id):
        if not log.events().with_key(key).exists():
            _RECORDERS[event.effect](event, key)
            if event.type == CONTEXT_COMPACTED.name:
                close_after_commit(event.session_id)


def record_commits_of(event: HookEvent, key: str, commits: list[CommitRecord]) -> None:
    """Record the commits that a recorded hook event made, in its turn."""
    if not commits:
        return
    turn_id = log.events().with_key(key).values_list("turn_id", flat=True).first() or ""
    with use_origin(session_id=event.session_id, turn_id=turn_id):
        record_commits(commits=commits)


def take_event(*, event: HookEvent, client: str, project: str, idempotency_key: str) -> str:
    """Capture a hook event in its project, and return the text that the client shows to its model, if any."""
    folder, problem = folder_settings_of(project, event)
    hint = hint_for(event, project)
    is_recorded = event.effect.is_recorded
    store = use_store(project_store(project), create=is_recorded)
    with store, use_folder(folder), use_origin(source="hook", actor=client):
        if is_recorded:
            capture(event=event, idempotency_key=idempotency_key)
        return f"{hint}{answer_to(event=event, project=project, problem=problem)}".rstrip()


def hint_for(event: HookEvent, project: str) -> str:
    """Return the hint of a project's first session: that it may have had another name, or what to import."""
    if not event.answers or event.effect.answer != PACK or not event.directory or project in list_projects():
        return ""
    folder = Path(event.directory)
    if hint := renamed_hint(folder, project):
        return f"Memory Hub begins the project {project}: {hint}\n\n"
    try:
        offer = first_offer(folder, project)
    except HubError as error:
        logger.warning("what could be imported into %s is unknown: %s", project, error.message)
        return ""
    return offer and f"{offer}\n\n"


def in_window(event: HookEvent, window: str) -> HookEvent:
    """Return the event with the session that its window was in until the user cleared the context."""
    if event.start != _CLEAR:
        return event
    earlier = windows.session_of(window)
    return replace(event, continued="" if earlier == event.session_id else earlier)


def note_window(*, event: HookEvent, window: str) -> None:
    """Note which session a client's window is in, for the MCP server that the same window has started."""
    if not window or not event.effect.stays_in_session:
        return
    try:
        windows.note_session(window, event.session_id)
    except OSError as error:  # such as a full disk; the event is recorded, and refusing it now would repeat it
        logger.warning("the session of window %s could not be noted: %s", window, error)


def answer_to(*, event: HookEvent, project: str, problem: str = "") -> str:
    """Return the text that the client shows to its model at a captured event; ``problem`` is one of its settings."""
    if not event.answers:
        return ""
    if event.effect.answer == NOTE:
        return note_at_action(event)
    if event.effect.answer == STATUS:
        return status_of(event.session_id)
    if event.effect.answer == ASK:
        return close_session(event.session_id, asks=True)
    if event.effect.answer == RECALL:
        return recall_at_prompt(event)
    if event.directory:
        # From now on another folder of the same name is another project.
        bind_project(project, Path(event.directory))
    opening = opening_of(event.session_id, event.continued)
    if problem:
        opening = f"Memory Hub ignores this folder's settings: {problem}\n\n{opening}"
    return opening.rstrip()


def recall_at_prompt(event: HookEvent) -> str:
    """Return what is recalled for a captured prompt."""
    turn_id = _open_turns(event.session_id).values_list("turn_id", flat=True).last() or ""
    with use_origin(session_id=event.session_id, turn_id=turn_id):
        return recall_of(event.session_id, event.payload.get("content", ""))


def note_at_action(event: HookEvent) -> str:
    """Return what a session should know before it runs a command or edits a file."""
    payload = event.payload
    path = payload.get("path", "")
    if path:
        path = path_in_project(str(PurePath(event.working_directory, path)), event.directory)
    elif event.type != COMMAND_RUN.name:
        return ""
    action = PlannedAction(event.session_id, payload.get("command", ""), path, payload.get("change", ""))
    turn_id = _open_turns(event.session_id).values_list("turn_id", flat=True).last() or ""
    with use_origin(session_id=event.session_id, turn_id=turn_id):
        return note_of(action)


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
    last = log.events().values_list("occurred_at", flat=True).last()
    if last:
        reported = max(reported, clock.from_text(last))
    return min(reported, clock.now())


# Starts after which the model's context has nothing of the session's past
_CLEAR = "clear"
_CONTEXT_LOST = ("compact", _CLEAR)


def _start_session(event: HookEvent, key: str | None) -> None:
    directory = flat(event.directory[:1_000])
    continue_session(SessionStart(session_id=event.session_id, directory=directory, idempotency_key=key))
    if event.start in _CONTEXT_LOST and _last_type(event.session_id) not in (None, CONTEXT_COMPACTED.name):
        _record_event(replace(event, type=CONTEXT_COMPACTED.name, payload={"content": event.start}), None)


# A client that tells of a compaction in advance needs no second event
def _last_type(session_id: str) -> str | None:
    captured = log.events().of_session(session_id).of_type(*client_events().values())
    return captured.values_list("event_type", flat=True).last()


def _prompt(event: HookEvent, key: str) -> None:
    if event.payload:
        _ensure_active(event)
        _close_open_turn(event)
        _append_to_turn(event, key)


def _record_event(event: HookEvent, key: str | None) -> None:
    if event.payload:
        _ensure_active(event)
        _append_to_turn(event, key)


def _stop(event: HookEvent, key: str) -> None:
    _record_event(event, key)
    # The event has the key, if there is one
    _close_open_turn(event, None if event.payload else key)


def _end_session(event: HookEvent, key: str) -> None:
    if _is_active(event.session_id):
        summary = digest_session(session_id=event.session_id, reason=event.reason)
        end_unattended(command=SessionEnd(session_id=event.session_id, summary=summary, idempotency_key=key))


_RECORDERS: dict[HookEffect, Callable[[HookEvent, str], None]] = {
    HookEffect.START: _start_session,
    HookEffect.PROMPT: _prompt,
    HookEffect.TOOL: _record_event,
    HookEffect.APPEND: _record_event,
    HookEffect.STOP: _stop,
    HookEffect.END: _end_session,
    HookEffect.NOTHING: lambda _event, _key: None,
}


# The start may have been missed, and a client may continue a session that has ended.
def _ensure_active(event: HookEvent) -> None:
    if not _is_active(event.session_id):
        _start_session(event, None)


def _is_active(session_id: str) -> bool:
    return Session.objects.filter(session_id=session_id, status=SessionStatus.ACTIVE).exists()


def _open_turns(session_id: str) -> QuerySet[Turn]:
    return Turn.objects.filter(session_id=session_id, status=TurnStatus.OPEN, automatic=True).order_by("id")


def _close_open_turn(event: HookEvent, key: str | None = None) -> None:
    if turn := _open_turns(event.session_id).last():
        close_turn(turn, idempotency_key=key)


def _append_to_turn(event: HookEvent, key: str | None) -> None:
    turn = automatic_turn(session_id=event.session_id)
    append_automatically(turn=turn, type=event.type, payload=event.payload, idempotency_key=key)
    with use_origin(turn_id=turn.turn_id):
        follow_state_file(event)


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
    if not hook_event.effect.is_handled:
        return HookContext()
    key = command.idempotency_key or f"hook-{ids.short_id()}"
    with use_origin(source="hook"):
        if hook_event.effect.answer == NOTE:
            return HookContext(context=note_at_action(hook_event))
        if not hook_event.effect.is_recorded:
            return HookContext()
        with clock.frozen(plausible_time(command.happened_at)) if command.happened_at else nullcontext():
            record_hook(hook_event, key)
            if project_settings().capture_commits:
                record_commits_of(hook_event, key, command.commits)
        if not hook_event.answers or hook_event.effect.answer == ASK:
            return HookContext()
        if hook_event.effect.answer == RECALL:
            return HookContext(context=recall_at_prompt(hook_event))
        return HookContext(context=opening_of(hook_event.session_id), is_pack=True)


# A folder with a name before it is no path here, so what reads a session's folder skips it. Sessions are named by their
# clients: another person's session of the same name is another session.
def _of_sender(event: HookEvent) -> HookEvent:
    actor = current_origin().actor
    sender = actor.removeprefix(AGENT_PREFIX)  # which looks like the name of a secret
    agent = Session.objects.filter(session_id=event.session_id).values_list("agent", flat=True).first()
    if agent is not None and _person(agent) != _person(actor):
        event = replace(event, session_id=f"{event.session_id[:_NAME_CHARS]}@{_person(sender)}")
    if event.directory:
        event = replace(event, directory=f"{sender}:{event.directory}")
    return replace(event, working_directory="")


# The actor of a person's token is `ann/laptop`.
def _person(actor: str) -> str:
    return actor.partition("/")[0]
