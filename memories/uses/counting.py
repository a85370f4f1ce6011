from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from memories.events import MEMORY_REVISED, MEMORY_WRITTEN, MemoryState
from memories.models import MemoryCitation, MemoryUse
from memories.uses.events import Use
from memoryhub.core import clock, log
from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.log.read import as_parameter
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, ORDERED_JOIN, greatest, int_entries
from sessions_app.events import SESSION_ENDED
from sessions_app.events.client import ASSISTANT_MESSAGE

_NAMES = [use.value for use in Use]


def count(use: Use, counts: Mapping[int, int], at: datetime) -> None:
    """Add to the counts by id of a use, any but citations, the last ``at`` a time; ids without a memory are ignored."""
    named = ", ".join(_NAMES)
    when = "last_given_at" if use is Use.GIVEN else "last_read_at"
    old, old_time = f"memories_memoryuse.{use.value}", f"memories_memoryuse.{when}"
    values = ", ".join("CAST(j.value AS integer)" if name == use else "0" for name in _NAMES)
    # Upserts one row per memory that exists: adds the counts, and keeps the later time
    rows.execute(
        f"INSERT INTO memories_memoryuse (memory_id, {named}, {when}) SELECT m.id, {values}, %s "
        f"FROM {int_entries()} AS j {ORDERED_JOIN} memories_memory AS m ON m.id = CAST(j.key AS integer) WHERE true "
        f"ON CONFLICT (memory_id) DO UPDATE SET {use.value} = {old} + excluded.{use.value}, "
        f"{when} = {greatest(f'coalesce({old_time}, excluded.{when})', f'excluded.{when}')}",
        [rows.time_value(at), json.dumps(dict(counts))],
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


def forget_citing(stream: str) -> None:
    """Delete the citations of an erased stream, which a rebuild could not find either."""
    citations = MemoryCitation.objects.filter(stream_id=stream)
    cited = list(citations.values_list("memory_id", flat=True))
    if not cited:
        return
    citations.delete()
    uses = MemoryUse.objects.filter(memory_id__in=as_parameter(IDS, cited))
    uses.update(cited=0, last_cited_at=None)
    _count_citations(cited)
    uses.filter(**dict.fromkeys(_NAMES, 0)).delete()


Texts = Callable[[Any], tuple[str, ...]]

# Excludes references to other scopes (``global#12``) and forges (``PR #12``, ``owner/name#12``), colours and entities
_NAMED = re.compile(
    r"(\b(?:PR|MR|issue|ticket|pull request|merge request)\s{1,3}|[\w#&/])?#(\d{1,15})\b", re.IGNORECASE
)


def named_in(*texts: str) -> set[int]:
    ids: set[int] = set()
    for text in texts:
        if "#" in text:
            ids.update(int(number) for before, number in _NAMED.findall(text) if not before)
    return ids


def define_citing(event_type: EventType[Any], texts: Texts) -> None:
    @projects(event_type)
    def keep_citations(event: Event[Any]) -> None:
        ids = named_in(*texts(event.payload))
        if ids:
            cite(ids, by=event.stream_id, at=event.occurred_at)


def _texts_of_memory(payload: MemoryState) -> tuple[str, ...]:
    return (payload.title, payload.content, json.dumps(payload.attributes))


def cite_again(stream: str) -> None:
    """Record the citations of what remains of an erased stream of messages."""
    for event in log.events().of_stream(stream).readable():
        if event.event_type != ASSISTANT_MESSAGE.name:
            continue
        content = json.loads(event.payload_json or "{}")["content"]
        # A message cannot cite what was written after it
        earlier = {memory_id for memory_id in named_in(content) if memory_id < event.position}
        if earlier:
            cite(earlier, by=stream, at=clock.from_text(event.occurred_at))


define_citing(MEMORY_WRITTEN, _texts_of_memory)
define_citing(MEMORY_REVISED, _texts_of_memory)
define_citing(SESSION_ENDED, lambda payload: (payload.summary,))
define_citing(ASSISTANT_MESSAGE, lambda payload: (payload.content,))
