"""The MCP tools of the audit: replay the log, prove the log."""

from __future__ import annotations

from dataclasses import asdict

from memoryhub.core.paging import as_lines
from memoryhub.core.tools import Answer, Tool, ToolGroup, register_tools
from sessions_app.audit import AuditVerify, verify_log
from sessions_app.replay import AuditReplay, event_line, replay_page


def replay(command: AuditReplay) -> Answer:
    """Answer with a page of the log: a line an event, or its canonical JSON."""
    listing = replay_page(command=command)
    return Answer(as_lines(listing, event_line, none="no event matches"), listing.model_dump(mode="json"))


def verify(_: AuditVerify) -> Answer:
    """Answer with what walking the chain found."""
    found = verify_log().found
    return Answer(found.describe(), {**asdict(found), "finding": found.describe()})


TOOLS = [
    Tool(
        "audit_replay",
        "Replay the event log by stream, session, turn, type, time or position; the same bytes on every run.",
        AuditReplay,
        replay,
        group=ToolGroup.TURNS,
        renamed={"stream_id": "stream", "event_type": "type"},
    ),
    Tool(
        "audit_verify",
        "Walk the log's chain of digests; names the first event that is not what was written.",
        AuditVerify,
        verify,
        group=ToolGroup.TURNS,
    ),
]

register_tools(*TOOLS)
