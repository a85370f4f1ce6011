"""MCP tools of sessions, turns and the event log."""

from __future__ import annotations

from dataclasses import asdict

from memoryhub.config.folder import current_folder
from memoryhub.core import clock
from memoryhub.core.contributions import opening_of
from memoryhub.core.paging import as_lines
from memoryhub.core.text import flat
from memoryhub.core.tools import Answer, Tool, ToolGroup, listed, register_tools
from sessions_app import selectors, services
from sessions_app.audit import AuditVerify, verify_log
from sessions_app.events.client import CUSTOM_RECORDED
from sessions_app.models import Session
from sessions_app.present import session_line, turn_line
from sessions_app.replay import AuditReplay, event_line, replay_page
from sessions_app.schemas import EventAppend, SessionEnd, SessionList, SessionStart, SessionTouch, TurnBegin, TurnEnd
from sessions_app.services import turns


def _shown(session: Session, *, next_session: str | None = None) -> Answer:
    data = selectors.view_session(session)
    return Answer(session_line(data), data, session_id=next_session)


def start(command: SessionStart) -> Answer:
    here = command.model_copy(update={"directory": command.directory or flat(current_folder().directory)})
    session = services.start_session(command=here)
    begun, opening = _shown(session, next_session=session.session_id), opening_of(session.session_id)
    text = f"{begun.text}\n{opening}" if opening else begun.text
    return Answer(text, {**begun.data, "context": opening}, session_id=begun.session_id)


def end(command: SessionEnd) -> Answer:
    return _shown(services.end_session(command=command), next_session="")


def pause(command: SessionTouch) -> Answer:
    return _shown(services.pause_session(command=command))


def resume(command: SessionTouch) -> Answer:
    session = services.resume_session(command=command)
    return _shown(session, next_session=session.session_id)


def list_sessions(command: SessionList) -> Answer:
    return listed(selectors.list_sessions(command=command), session_line, none="no session yet")


TOOLS = [
    Tool(
        "session_end",
        "End the session with a summary: done, learnt, left open.",
        SessionEnd,
        end,
        writes=True,
        keeps_turns=True,
        full_name="memory_session_end",
        renamed={"id": "session_id"},
    ),
    Tool(
        "session_start",
        "Begin a session.",
        SessionStart,
        start,
        group=ToolGroup.WORK,
        writes=True,
        keeps_turns=True,
        full_name="memory_session_start",
        renamed={"agent_id": "agent"},
    ),
    Tool(
        "session_pause",
        "Pause the session. Its next write resumes it.",
        SessionTouch,
        pause,
        group=ToolGroup.TURNS,
        writes=True,
        keeps_turns=True,
    ),
    Tool(
        "session_resume",
        "Resume a paused session in this connection.",
        SessionTouch,
        resume,
        group=ToolGroup.TURNS,
        writes=True,
        keeps_turns=True,
    ),
    Tool(
        "session_list",
        "List sessions, newest first.",
        SessionList,
        list_sessions,
        group=ToolGroup.SCOPES,
        full_name="memory_session_list",
    ),
]

register_tools(*TOOLS)


def begin(command: TurnBegin) -> Answer:
    # The only answer that contains the token; just its hash is stored.
    begun = turns.begin_turn(command=command)
    data = {**selectors.view_turn(begun.turn), "ack_token": begun.ack_token}
    until = clock.minute(begun.turn.expires_at)
    return Answer(f"turn {begun.turn.turn_id} is open until {until}; ack_token={begun.ack_token}", data)


def append(command: EventAppend) -> Answer:
    event = turns.append_event(command=command)
    data = {"position": event.position, "type": event.type, "stream_seq": event.stream_seq, "turn_id": event.turn_id}
    name = f"{event.type} {event.payload.type}" if event.type == CUSTOM_RECORDED.name else event.type
    return Answer(f"appended #{event.position} {name} to turn {event.turn_id}", data)


def end_this_turn(command: TurnEnd) -> Answer:
    data = selectors.view_turn(turns.end_turn(command=command))
    return Answer(turn_line(data), data)


TURN_TOOLS = [
    Tool(
        "turn_begin",
        "Begin a turn: one user request and the work on it. Returns the ack_token to send from then on.",
        TurnBegin,
        begin,
        group=ToolGroup.TURNS,
        writes=True,
        keeps_turns=True,
    ),
    Tool(
        "event_append",
        "Append an event to the open turn: message, tool call, edit, command, phase, approval, or your own.",
        EventAppend,
        append,
        group=ToolGroup.TURNS,
        writes=True,
        keeps_turns=True,
        renamed={"event_type": "type", "payload_json": "payload"},
    ),
    Tool(
        "turn_end", "End the open turn.", TurnEnd, end_this_turn, group=ToolGroup.TURNS, writes=True, keeps_turns=True
    ),
]

register_tools(*TURN_TOOLS)


def replay(command: AuditReplay) -> Answer:
    listing = replay_page(command=command)
    return Answer(as_lines(listing, event_line, none="no event matches"), listing.model_dump(mode="json"))


def verify(_: AuditVerify) -> Answer:
    found = verify_log().found
    return Answer(found.describe(), {**asdict(found), "finding": found.describe()})


AUDIT_TOOLS = [
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
]

register_tools(*AUDIT_TOOLS)
