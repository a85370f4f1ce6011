"""MCP tools, registered on import in the order in which they are listed."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

from memoryhub.config.current_settings import current_folder
from memoryhub.core import clock
from memoryhub.core.contributions import opening_of
from memoryhub.core.paging import as_lines
from memoryhub.core.text import flat
from memoryhub.core.tools import Answer, Tool, ToolGroup, listed, register_tools
from sessions_app import schemas, selectors, services
from sessions_app.audit import AuditReplay, AuditVerify, event_line, replay_page, verify_log
from sessions_app.events.client import CUSTOM_RECORDED
from sessions_app.models import Iteration, Session
from sessions_app.present import commit_line, iteration_line, iteration_text, session_line, turn_line
from sessions_app.services import turns, work


def _session_answer(session: Session, *, next_session: str | None = None) -> Answer:
    data = selectors.view_session(session)
    return Answer(session_line(data), data, session_id=next_session)


def start_session(command: schemas.SessionStart) -> Answer:
    here = command.model_copy(update={"directory": command.directory or flat(current_folder().directory)})
    session = services.start_session(command=here)
    data, opening = selectors.view_session(session), opening_of(session.session_id)
    text = f"{session_line(data)}\n{opening}".rstrip()
    return Answer(text, {**data, "context": opening}, session_id=session.session_id)


def end_session(command: schemas.SessionEnd) -> Answer:
    return _session_answer(services.end_session(command=command), next_session="")


def pause_session(command: schemas.SessionTouch) -> Answer:
    return _session_answer(services.pause_session(command=command))


def resume_session(command: schemas.SessionTouch) -> Answer:
    session = services.resume_session(command=command)
    return _session_answer(session, next_session=session.session_id)


def list_sessions(command: schemas.SessionList) -> Answer:
    return listed(selectors.list_sessions(command=command), session_line, none="no session yet")


_turn_tool = partial(Tool, group=ToolGroup.TURNS, writes=True, keeps_turns=True)
_iteration_tool = partial(Tool, group=ToolGroup.ITERATIONS, writes=True)

register_tools(
    Tool(
        "session_end",
        "End the session with a summary: done, learnt, left open.",
        schemas.SessionEnd,
        end_session,
        writes=True,
        keeps_turns=True,
        full_name="memory_session_end",
        renamed={"id": "session_id"},
    ),
    Tool(
        "session_start",
        "Begin a session.",
        schemas.SessionStart,
        start_session,
        group=ToolGroup.WORK,
        writes=True,
        keeps_turns=True,
        full_name="memory_session_start",
        renamed={"agent_id": "agent"},
    ),
    _turn_tool("session_pause", "Pause the session. Its next write resumes it.", schemas.SessionTouch, pause_session),
    _turn_tool("session_resume", "Resume a paused session in this connection.", schemas.SessionTouch, resume_session),
    Tool(
        "session_list",
        "List sessions, newest first.",
        schemas.SessionList,
        list_sessions,
        group=ToolGroup.SCOPES,
        full_name="memory_session_list",
    ),
)


def begin(command: schemas.TurnBegin) -> Answer:
    # The only answer that contains the token; just its hash is stored.
    begun = turns.begin_turn(command=command)
    data = {**selectors.view_turn(begun.turn), "ack_token": begun.ack_token}
    until = clock.minute(begun.turn.expires_at)
    return Answer(f"turn {begun.turn.turn_id} is open until {until}; ack_token={begun.ack_token}", data)


def append(command: schemas.EventAppend) -> Answer:
    event = turns.append_event(command=command)
    data = {"position": event.position, "type": event.type, "stream_seq": event.stream_seq, "turn_id": event.turn_id}
    name = event.type
    if name == CUSTOM_RECORDED.name:
        name += f" {event.payload.type}"
    return Answer(f"appended #{event.position} {name} to turn {event.turn_id}", data)


def end_turn(command: schemas.TurnEnd) -> Answer:
    data = selectors.view_turn(turns.end_turn(command=command))
    return Answer(turn_line(data), data)


register_tools(
    _turn_tool(
        "turn_begin",
        "Begin a turn: one user request and the work on it. Returns the ack_token to send from then on.",
        schemas.TurnBegin,
        begin,
    ),
    _turn_tool(
        "event_append",
        "Append an event to the open turn: message, tool call, edit, command, phase, approval, or your own.",
        schemas.EventAppend,
        append,
        renamed={"event_type": "type", "payload_json": "payload"},
    ),
    _turn_tool("turn_end", "End the open turn.", schemas.TurnEnd, end_turn),
)


def replay(command: AuditReplay) -> Answer:
    listing = replay_page(command=command)
    return Answer(as_lines(listing, event_line, none="no event matches"), listing.model_dump(mode="json"))


def verify(_: AuditVerify) -> Answer:
    verification = verify_log().verification
    return Answer(verification.describe(), {**asdict(verification), "finding": verification.describe()})


register_tools(
    Tool(
        "audit_replay",
        "Read the event log, filtered; every run gives the same bytes.",
        AuditReplay,
        replay,
        group=ToolGroup.TURNS,
        renamed={"stream_id": "stream", "event_type": "type"},
    ),
    Tool(
        "audit_verify",
        "Verify the log's hash chain; names the first altered event.",
        AuditVerify,
        verify,
        group=ToolGroup.TURNS,
    ),
)


def record_commit(command: schemas.CommitRead) -> Answer:
    folder = current_folder().directory
    commit = services.record_commit(command=command, directory=Path(folder) if folder else None)
    data = selectors.view_commit(commit)
    line = commit_line(data)
    if data["iteration_id"]:
        line += f" iteration=#{data['iteration_id']}"
    return Answer(line, data)


register_tools(
    Tool(
        "commit_record",
        "Record a commit by its sha; the rest is read from git.",
        schemas.CommitRead,
        record_commit,
        group=ToolGroup.WORK,
        writes=True,
        idempotent=True,
        full_name="memory_log_commit",
    ),
)


def _iteration_answer(iteration: Iteration) -> Answer:
    data = selectors.view_iteration(iteration)
    return Answer(iteration_line(data), data)


def start_iteration(command: schemas.IterationStart) -> Answer:
    return _iteration_answer(work.start_iteration(command=command))


def advance_iteration(command: schemas.IterationAdvance) -> Answer:
    return _iteration_answer(work.advance_iteration(command=command))


def complete_iteration(command: schemas.IterationComplete) -> Answer:
    return _iteration_answer(work.complete_iteration(command=command))


def get_iteration(command: schemas.IterationGet) -> Answer:
    data = selectors.get_iteration(command=command)
    return Answer(iteration_text(data), data)


register_tools(
    _iteration_tool(
        "iteration_start",
        "Begin an iteration; commits and events attach to it.",
        schemas.IterationStart,
        start_iteration,
    ),
    _iteration_tool(
        "iteration_advance",
        "Complete the current phase and begin the next.",
        schemas.IterationAdvance,
        advance_iteration,
    ),
    _iteration_tool(
        "iteration_complete", "Complete or abandon the iteration.", schemas.IterationComplete, complete_iteration
    ),
    Tool(
        "iteration_get",
        "Get an iteration with its phases, commits and events.",
        schemas.IterationGet,
        get_iteration,
        group=ToolGroup.ITERATIONS,
        full_name="memory_get_iteration",
    ),
)
