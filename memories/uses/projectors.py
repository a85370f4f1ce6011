from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from memories.events import CONTEXT_PACKED, MEMORY_REVISED, ContextPacked, MemoryRevised
from memories.models import EndType
from memories.uses.counting import cite_again, count, forget_citing, forget_memory
from memories.uses.events import MEMORIES_USED, MemoriesUsed, Use
from memoryhub.core import clock
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, entries, int_elements, int_entries, json_text
from sessions_app.events.client import ASSISTANT_MESSAGE


@projects(CONTEXT_PACKED)
def count_given(event: Event[ContextPacked]) -> None:
    count(Use.GIVEN, dict.fromkeys(own_memories(event.payload.marks), 1), event.occurred_at)


@projects(MEMORIES_USED)
def count_noted(event: Event[MemoriesUsed]) -> None:
    for use, counts in event.payload.uses.items():
        count(use, counts, clock.from_text(event.payload.used_at))


@projects(MEMORY_REVISED)
def count_updated(event: Event[MemoryRevised]) -> None:
    count(Use.UPDATED, {event.payload.memory_id: 1}, event.occurred_at)


@projects(PAYLOAD_ERASED)
def forget_erased(event: Event[PayloadErased]) -> None:
    forget_packs(event.payload.positions)
    for stream in event.payload.streams:
        forget_citing(stream)
        kind, _, memory_id = stream.partition(":")
        if kind == EndType.MEMORY:
            forget_memory(int(memory_id))
    for (stream,) in rows.fetch(
        _STREAMS_LEFT, [json.dumps(event.payload.positions), json.dumps(event.payload.streams)]
    ):
        forget_citing(stream)
        cite_again(stream)


_STREAMS_LEFT = (
    f"SELECT DISTINCT stream_id FROM raw_events WHERE position IN {IDS} "
    f"AND event_type = '{ASSISTANT_MESSAGE.name}' AND stream_id NOT IN {TEXTS}"
)


# Erased packs: their counts are taken back, as a rebuild would not find them either

_PACKS = (
    "SELECT p.id, p.marks, e.occurred_at FROM memories_contextpack p JOIN raw_events e ON e.position = p.id "
    f"WHERE p.id IN {IDS}"
)
_PRUNED = (
    f"SELECT j.value, max(e.position) FROM raw_events e, {int_elements('e.payload_json', 'memory_ids')} j "
    f"WHERE e.event_type = 'memories.uses_pruned' AND e.payload_json IS NOT NULL AND j.value IN {IDS} GROUP BY 1"
)
_TAKE_BACK = (
    f"UPDATE memories_memoryuse SET given = given - CAST(j.value AS integer) FROM {int_entries()} AS j "
    "WHERE memory_id = CAST(j.key AS integer)"
)
# Memories whose last_given_at may come from an erased pack
_IN_DOUBT = f"SELECT memory_id FROM memories_memoryuse WHERE memory_id IN {IDS} AND last_given_at <= %s"
_STILL_GIVEN = (
    "SELECT p.id, p.marks, e.occurred_at FROM memories_contextpack p JOIN raw_events e ON e.position = p.id "
    "WHERE e.occurred_at <= %s"
)
# Notes that count a memory as given, with their time
_NOTED = (
    f"SELECT e.position, j.key, {json_text('e.payload_json', 'used_at')} FROM raw_events e, "
    f"{entries('e.payload_json', 'uses', 'given')} j WHERE e.event_type = '{MEMORIES_USED.name}' "
    f"AND e.payload_json IS NOT NULL AND CAST(j.key AS integer) IN {IDS}"
)
_SET_LAST = "UPDATE memories_memoryuse SET last_given_at = %s WHERE memory_id = %s"
_UNUSED = f"DELETE FROM memories_memoryuse WHERE memory_id IN {IDS} AND " + " AND ".join(
    f"{use.value} = 0" for use in Use
)


def own_memories(marks: Iterable[str]) -> set[int]:
    """Return the ids of the store's own entities in a pack, from the keys of its marks."""
    references = (key.rpartition(" ")[2] for key in marks)
    return {int(reference[1:]) for reference in references if reference[:1] == "#" and reference[1:].isdecimal()}


def forget_packs(positions: Sequence[int]) -> None:
    packs = rows.fetch(_PACKS, [json.dumps(list(positions))])
    if not packs:
        return
    rows.execute(f"DELETE FROM memories_contextpack WHERE id IN {IDS}", [json.dumps([pack for pack, _, _ in packs])])
    given = {position: own_memories(json.loads(marks)) for position, marks, _ in packs}
    pruned = _pruned({memory_id for ids in given.values() for memory_id in ids})
    counts = Counter(
        memory_id for position, ids in given.items() for memory_id in ids if position > pruned.get(memory_id, 0)
    )
    listed = json.dumps(sorted(counts))
    rows.execute(_TAKE_BACK, [json.dumps({str(memory_id): number for memory_id, number in counts.items()})])
    _recompute_last(listed, until=max(occurred for _, _, occurred in packs))
    rows.execute(_UNUSED, [listed])


# Position at which the counts of a memory were last pruned: uses before it are not in the counts
def _pruned(ids: Iterable[int]) -> dict[int, int]:
    return dict(rows.fetch(_PRUNED, [json.dumps(sorted(ids))]))


# Recomputes last_given_at where it may have come from an erased pack
def _recompute_last(listed: str, *, until: str) -> None:
    in_doubt = [row[0] for row in rows.fetch(_IN_DOUBT, [listed, rows.time_value(clock.from_text(until))])]
    if not in_doubt:
        return
    last: dict[int, str] = {}
    pruned = _pruned(in_doubt)
    wanted = set(in_doubt)
    for position, marks, occurred in rows.fetch(_STILL_GIVEN, [until]):
        for memory_id in own_memories(json.loads(marks)) & wanted:
            if position > pruned.get(memory_id, 0):
                last[memory_id] = max(last.get(memory_id, ""), occurred)
    for position, key, used_at in rows.fetch(_NOTED, [json.dumps(in_doubt)]):
        if position > pruned.get(int(key), 0):
            last[int(key)] = max(last.get(int(key), ""), clock.to_text(clock.from_text(used_at)))
    for memory_id in in_doubt:
        moment = last.get(memory_id)
        rows.execute(_SET_LAST, [rows.time_value(clock.from_text(moment)) if moment else None, memory_id])
