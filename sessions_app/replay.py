"""The event log as pages of JSON data."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from memoryhub.core import clock
from memoryhub.core.log import ReplayWindow
from memoryhub.core.log.read import described
from memoryhub.core.schemas import Command


class EventList(Command):
    """Which part of the log; every given condition must hold."""

    stream: str = Field("", max_length=200, description="only this stream, such as memory:412")
    session_id: str = Field("", max_length=200, description="only of this session")
    type: str = Field("", max_length=64, description="only this type, such as memory.written")
    since: datetime | None = Field(None, description="at or after")
    until: datetime | None = Field(None, description="before")
    after: int = Field(0, ge=0, le=2**53, description="only positions greater than this")
    limit: int = Field(100, ge=1, le=1000, description="at most so many")


class EventPage(BaseModel):
    """A page of the log; ``next_after`` goes on behind it, and is null at the end."""

    results: list[dict[str, Any]]
    next_after: int | None


def list_events(*, command: EventList) -> EventPage:
    """Return events in order of position, with payloads (null once erased) and digests."""
    window = ReplayWindow(
        stream_id=command.stream,
        session_id=command.session_id,
        event_type=command.type,
        since=clock.to_text(command.since) if command.since else "",
        until=clock.to_text(command.until) if command.until else "",
        after=command.after,
        limit=command.limit + 1,
    )
    found = [described(row) for row in window.events()]
    shown = found[: command.limit]
    return EventPage(results=shown, next_after=shown[-1]["position"] if len(found) > command.limit else None)
