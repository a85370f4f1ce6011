"""Read and verify the current store's log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from memoryhub.core import clock, log
from memoryhub.core.log import EventQuerySet
from memoryhub.core.log.anchor import Checkpoint, checkpoint_at, read_checkpoint, write_checkpoint
from memoryhub.core.log.read import described, main_text
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import MAX_INTEGER, Command, Listing, Moment, Paging, at_most
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import NOT_BLANK, flat


class AuditVerify(Command):
    pass


@dataclass(frozen=True, slots=True)
class Audit:
    """The verification, the checkpoint it was compared with and the one that was written, if any."""

    verification: log.Verification
    compared: Checkpoint | None = None
    written: Checkpoint | None = None


def verify_log(*, checkpoint: Path | None = None, new_checkpoint: Path | None = None) -> Audit:
    """Verify the current store's hash chain.

    Args:
        checkpoint: file to compare with; it is created if it does not exist.
        new_checkpoint: file to write the chain's head to, if the chain is valid.

    Raises:
        Invalid: the file holds no checkpoint, or that of another store.
    """
    earlier = read_checkpoint(checkpoint) if checkpoint else None
    verification = log.verify(earlier)
    target = new_checkpoint
    if target is None and earlier is None:
        target = checkpoint
    if target is None or not verification.ok:
        return Audit(verification, earlier)
    written = checkpoint_at(current_store(), verification.events, verification.head_digest)
    write_checkpoint(target, written)
    return Audit(verification, earlier, written)


EventTypeName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64, pattern=NOT_BLANK)]


class EventWindow(Command):
    """A part of the log: events that match all conditions."""

    stream: str = Field("", max_length=200, description="only this stream, such as memory:412")
    session_id: str = Field("", max_length=200, description="only this session")
    turn_id: str = Field("", max_length=200, description="only this turn")
    type: list[EventTypeName] = Field(
        default_factory=list, max_length=32, description="only these types, such as turn.began"
    )
    since: Moment | None = Field(None, description="at or after")
    until: Moment | None = Field(None, description="before")
    after: int = Field(0, ge=0, le=2**53, description="only positions greater than this")
    up_to: int | None = Field(None, ge=0, le=2**53, description="only positions up to this one")


class AuditReplay(EventWindow, Paging):
    """Replay a part of the log in pages."""

    limit: Annotated[int, at_most(1000)] = Field(100, ge=1, le=MAX_INTEGER, description="events per page, at most 1000")


def replay_page(*, command: AuditReplay) -> Listing:
    """Return events by position, with payloads (None once erased) and digests.

    Deterministic if the window has an end.
    """
    window = _events_of(command)
    (start,) = decode_cursor(command.cursor, (int,)) or (0,)
    events = window.filter(position__gt=start)[: command.limit + 1]
    rows = list(map(described, events))
    if command.compact:
        rows = [{"event_type": event["event_type"], "position": event["position"]} for event in rows]
    return page(
        rows[: command.limit],
        total=window.count(),
        more=len(rows) > command.limit,
        cursor_of=lambda event: encode_cursor(event["position"]),
        line=event_line,
        max_tokens=command.max_tokens,
    )


def replay_lines(*, command: EventWindow, limit: int | None = None) -> Iterator[str]:
    """Yield each event of a window as a line of canonical JSON; deterministic."""
    return log.replay(_events_of(command)[:limit])


def event_line(event: dict[str, Any]) -> str:
    if "payload_digest" not in event:
        return f"#{event['position']} {event['event_type']}"
    words = [
        f"#{event['position']} {event['occurred_at']} {event['event_type']} {event['stream_id']}/{event['stream_seq']}",
        f"by {event['actor']} via {event['source']}",
    ]
    words += [f"{name}={event[key]}" for name, key in (("session", "session_id"), ("turn", "turn_id")) if event[key]]
    words.append("(erased)" if event["payload"] is None else main_text(event["payload"]))
    return flat(" ".join(words)).rstrip()


def _events_of(command: EventWindow) -> EventQuerySet:
    events = log.events().window(
        after=command.after, up_to=command.up_to, since=_log_time(command.since), until=_log_time(command.until)
    )
    if command.stream:
        events = events.of_stream(command.stream)
    if command.session_id:
        events = events.of_session(command.session_id)
    if command.turn_id:
        events = events.filter(turn_id=command.turn_id)
    if command.type:
        events = events.of_type(*command.type)
    return events


def _log_time(moment: datetime | None) -> str:
    return clock.to_text(moment) if moment else ""
