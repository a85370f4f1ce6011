"""The MCP tools of turns."""

from __future__ import annotations

from memoryhub.core import clock
from memoryhub.core.tools import Answer, Tool, ToolGroup, register_tools
from sessions_app import selectors
from sessions_app.present import turn_line
from sessions_app.schemas import EventAppend, TurnBegin, TurnEnd
from sessions_app.services import turns


def begin(command: TurnBegin) -> Answer:
    """Answer with the turn's name and its token, which is shown this once."""
    begun = turns.begin_turn(command=command)
    data = {**selectors.view_turn(begun.turn), "ack_token": begun.ack_token}
    until = clock.to_text(begun.turn.expires_at)[:16]
    return Answer(f"turn {begun.turn.turn_id} is open until {until}; ack_token={begun.ack_token}", data)


def append(command: EventAppend) -> Answer:
    """Answer with the position of the event."""
    event = turns.append_event(command=command)
    data = {"position": event.position, "type": event.type, "stream_seq": event.stream_seq, "turn_id": event.turn_id}
    return Answer(f"appended #{event.position} {event.type} to turn {event.turn_id}", data)


def end(command: TurnEnd) -> Answer:
    """Answer with the turn as it ended."""
    data = selectors.view_turn(turns.end_turn(command=command))
    return Answer(turn_line(data), data)


TOOLS = [
    Tool(
        "turn_begin",
        "Begin a turn: one user request and all that answers it. Returns the ack_token to show from then on.",
        TurnBegin,
        begin,
        group=ToolGroup.TURNS,
        writes=True,
        keeps_turns=True,
    ),
    Tool(
        "event_append",
        "Append what was said or done to the open turn: messages, tool calls, edits, commands, phases, approvals.",
        EventAppend,
        append,
        group=ToolGroup.TURNS,
        writes=True,
        keeps_turns=True,
        renamed={"event_type": "type"},
    ),
    Tool("turn_end", "End the open turn.", TurnEnd, end, group=ToolGroup.TURNS, writes=True, keeps_turns=True),
]

register_tools(*TOOLS)
