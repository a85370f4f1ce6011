from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from memories.events import MEMORY_REVISED, MEMORY_WRITTEN, MemoryState
from memories.uses.events import Use
from memoryhub.core import clock
from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, ORDERED_JOIN, greatest, int_entries, json_text, unindexed
from sessions_app.events import SESSION_ENDED, SessionEnded
from sessions_app.events.client import ASSISTANT_MESSAGE, Message

_WHEN = {use: "last_given_at" if use is Use.GIVEN else "last_read_at" for use in Use}
_NAMES = [use.value for use in Use]


def count(use: Use, counts: Mapping[int, int], at: datetime) -> None:
    """Add to the use counts of memories; ids without a memory are ignored.

    Args:
        use: any but citations, which ``cite`` counts.
        counts: by id.
        at: time of the last use.
    """
    named, when = ", ".join(_NAMES), _WHEN[use]
    old, old_time = f"memories_memoryuse.{use.value}", f"memories_memoryuse.{when}"
    values = ", ".join("CAST(j.value AS integer)" if name == use else "0" for name in _NAMES)
    # Upserts one row per memory that exists: adds the counts, and keeps the later time
    rows.execute(
        f"INSERT INTO memories_memoryuse (memory_id, {named}, {when}) SELECT m.id, {values}, %s "
        f"FROM {int_entries()} AS j {ORDERED_JOIN} memories_memory AS m ON m.id = CAST(j.key AS integer) WHERE true "
        f"ON CONFLICT (memory_id) DO UPDATE SET {use.value} = {old} + excluded.{use.value}, "
        f"{when} = {greatest(f'coalesce({old_time}, excluded.{when})', f'excluded.{when}')}",
        [rows.time_value(at), json.dumps({str(memory_id): number for memory_id, number in counts.items()})],
    )


def cite(ids: Collection[int], *, by: str, at: datetime) -> None:
    """Record that stream ``by`` names memories: each counts once, and a memory citing itself does not."""
    rows.execute(
        f"INSERT INTO memories_memorycitation (memory_id, stream_id, cited_at) SELECT id, %s, %s FROM memories_memory "
        f"WHERE id IN {IDS} AND %s <> 'memory:' || id "
        "ON CONFLICT (memory_id, stream_id) DO UPDATE SET cited_at = excluded.cited_at",
        [by, rows.time_value(at), json.dumps(sorted(ids)), by],
    )
    _count_citations(ids)


def _count_citations(ids: Collection[int]) -> None:
    named = ", ".join(_NAMES)
    values = ", ".join("count(*)" if name == Use.CITED else "0" for name in _NAMES)
    rows.execute(
        f"INSERT INTO memories_memoryuse (memory_id, {named}, last_cited_at) SELECT memory_id, {values}, max(cited_at) "
        f"FROM memories_memorycitation WHERE memory_id IN {IDS} GROUP BY memory_id "
        "ON CONFLICT (memory_id) DO UPDATE SET cited = excluded.cited, last_cited_at = excluded.last_cited_at",
        [json.dumps(sorted(ids))],
    )


def forget_memory(memory_id: int) -> None:
    rows.execute("DELETE FROM memories_memorycitation WHERE memory_id = %s", [memory_id])
    rows.execute("DELETE FROM memories_memoryuse WHERE memory_id = %s", [memory_id])


def forget_citing(stream: str) -> None:
    """Delete the citations of an erased stream, which a rebuild could not find either."""
    cited = [
        row[0] for row in rows.fetch("SELECT memory_id FROM memories_memorycitation WHERE stream_id = %s", [stream])
    ]
    if not cited:
        return
    listed = json.dumps(cited)
    rows.execute("DELETE FROM memories_memorycitation WHERE stream_id = %s", [stream])
    rows.execute(f"UPDATE memories_memoryuse SET cited = 0, last_cited_at = NULL WHERE memory_id IN {IDS}", [listed])
    _count_citations(cited)
    unused = " AND ".join(f"{name} = 0" for name in _NAMES)
    rows.execute(f"DELETE FROM memories_memoryuse WHERE memory_id IN {IDS} AND {unused}", [listed])


Texts = Callable[[Any], tuple[str, ...]]

# Excludes references to other scopes (``global#12``) and forges (``PR #12``, ``owner/name#12``), colours and entities
_NAMED = re.compile(
    r"(\b(?:PR|MR|issue|ticket|pull request|merge request)\s{1,3}|[\w#&/])?#(\d{1,15})\b", re.IGNORECASE
)


def named_in(*texts: str) -> set[int]:
    named = (text for text in texts if "#" in text)
    return {int(number) for text in named for before, number in _NAMED.findall(text) if not before}


def define_citing(event_type: EventType[Any], texts: Texts) -> None:
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
    # A message cannot cite what was written after it
    for position, occurred_at, content in rows.fetch(_MESSAGES_LEFT, [ASSISTANT_MESSAGE.name, stream]):
        earlier = {memory_id for memory_id in named_in(content) if memory_id < position}
        if earlier:
            cite(earlier, by=stream, at=clock.from_text(occurred_at))


# The unary plus keeps SQLite from the index on event_type, which is slower here than the one on stream_id
_MESSAGES_LEFT = (
    f"SELECT position, occurred_at, {json_text('payload_json', 'content')} FROM raw_events "
    f"WHERE {unindexed('event_type')} = %s AND stream_id = %s AND payload_json IS NOT NULL ORDER BY position"
)


define_citing(MEMORY_WRITTEN, _of_memory)
define_citing(MEMORY_REVISED, _of_memory)
define_citing(SESSION_ENDED, _of_session)
define_citing(ASSISTANT_MESSAGE, _of_message)
