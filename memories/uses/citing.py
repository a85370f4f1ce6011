"""Where things of a store are named in text: ``#412``. Apps say which of their events have such text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from memories.events import MEMORY_REVISED, MEMORY_WRITTEN, MemoryState
from memories.uses.counting import cite
from memoryhub.core import clock, rows
from memoryhub.core.dialect import json_text
from memoryhub.core.event_types import EventType
from memoryhub.core.projection import Event, projects
from sessions_app.events import SESSION_ENDED, SessionEnded
from sessions_app.events.client import ASSISTANT_MESSAGE, Message

Texts = Callable[[Any], tuple[str, ...]]

_NAMED = re.compile(
    r"(\b(?:PR|MR|issue|ticket|pull request|merge request)\s{1,3}|[\w#&/])?#(\d{1,15})\b", re.IGNORECASE
)
"""Not of another scope (``global#12``), nor of a forge (``PR #12``, ``owner/name#12``), nor a colour or an entity."""


def named_in(*texts: str) -> set[int]:
    """Return the ids that the texts name."""
    named = (text for text in texts if "#" in text)
    return {int(number) for text in named for before, number in _NAMED.findall(text) if not before}


def define_citing(event_type: EventType[Any], texts: Texts) -> None:
    """Register that such an event cites what the ``texts`` of its payload name."""

    @projects(event_type)
    def keep_citations(event: Event[Any]) -> None:
        ids = named_in(*texts(event.payload))
        if ids:
            cite(ids, by=event.stream_id, at=event.occurred_at)


def _of_memory(payload: MemoryState) -> tuple[str, ...]:
    return (payload.title, payload.content, json.dumps(payload.attributes) if payload.attributes else "")


def _of_session(payload: SessionEnded) -> tuple[str, ...]:
    return (payload.summary,)


def _of_message(payload: Message) -> tuple[str, ...]:
    return (payload.content,)


def cite_again(stream: str) -> None:
    """Cite what the messages that a stream still has name; what came after a message it cannot name."""
    for position, occurred_at, content in rows.fetch(_MESSAGES_LEFT, [ASSISTANT_MESSAGE.name, stream]):
        earlier = {each for each in named_in(content) if each < position}
        if earlier:
            cite(earlier, by=stream, at=clock.from_text(occurred_at))


_MESSAGES_LEFT = (
    f"SELECT position, occurred_at, {json_text('payload_json', 'content')} FROM raw_events "
    "WHERE +event_type = %s AND stream_id = %s AND payload_json IS NOT NULL ORDER BY position"
)


define_citing(MEMORY_WRITTEN, _of_memory)
define_citing(MEMORY_REVISED, _of_memory)
define_citing(SESSION_ENDED, _of_session)
define_citing(ASSISTANT_MESSAGE, _of_message)
