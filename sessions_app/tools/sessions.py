"""The MCP tools of sessions."""

from __future__ import annotations

from pathlib import Path

from memoryhub.core.contributions import opening_of
from memoryhub.core.paging import as_lines
from memoryhub.core.tools import Answer, Tool, ToolGroup, register_tools
from memoryhub.core.wording import flat
from sessions_app import selectors, services
from sessions_app.models import Session
from sessions_app.present import session_line
from sessions_app.schemas import SessionEnd, SessionList, SessionStart, SessionTouch


def _shown(session: Session, *, goes_on_in: str) -> Answer:
    data = selectors.view_session(session)
    return Answer(session_line(data), data, session_id=goes_on_in)


def start(command: SessionStart) -> Answer:
    """Answer with the session that began, and with what it should know."""
    here = command.model_copy(update={"directory": command.directory or flat(str(Path.cwd()))})
    session = services.start_session(command=here)
    begun, opening = _shown(session, goes_on_in=session.session_id), opening_of(session.session_id)
    text = f"{begun.text}\n{opening}" if opening else begun.text
    return Answer(text, {**begun.data, "context": opening}, session_id=begun.session_id)


def end(command: SessionEnd) -> Answer:
    """Answer with the session as it ended."""
    return _shown(services.end_session(command=command), goes_on_in="")


def pause(command: SessionTouch) -> Answer:
    """Answer with the session, set aside."""
    return _shown(services.pause_session(command=command), goes_on_in="")


def resume(command: SessionTouch) -> Answer:
    """Answer with the session, taken up again."""
    session = services.resume_session(command=command)
    return _shown(session, goes_on_in=session.session_id)


def list_sessions(command: SessionList) -> Answer:
    """Answer with a page of sessions."""
    listing = selectors.list_sessions(command=command)
    text = as_lines(listing, session_line, none="no session yet")
    return Answer(text, listing.model_dump(mode="json", exclude_none=True))


TOOLS = [
    Tool(
        "session_end",
        "End the session with a summary of what was done, learnt and left open.",
        SessionEnd,
        end,
        writes=True,
        keeps_turns=True,
        aliases=("memory_session_end",),
        renamed={"id": "session_id"},
    ),
    Tool(
        "session_start",
        "Begin a session: purpose, mode, directory.",
        SessionStart,
        start,
        group=ToolGroup.WORK,
        writes=True,
        keeps_turns=True,
        aliases=("memory_session_start",),
        renamed={"agent_id": "agent"},
    ),
    Tool(
        "session_pause",
        "Set the session aside; session_resume takes it up again.",
        SessionTouch,
        pause,
        group=ToolGroup.TURNS,
        writes=True,
        keeps_turns=True,
    ),
    Tool(
        "session_resume",
        "Take a paused session up again; this connection goes on in it.",
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
        aliases=("memory_session_list",),
    ),
]

register_tools(*TOOLS)
