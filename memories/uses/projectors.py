from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from memories.events import CONTEXT_PACKED, MEMORY_REVISED, ContextPacked, MemoryRevised
from memories.models import ContextPack, EndType, MemoryCitation, MemoryUse
from memories.pack_sorts import local_id
from memories.uses.counting import cite_again, count, forget_citing
from memories.uses.events import MEMORIES_USED, MemoriesUsed, Use
from memoryhub.core import clock, log
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.log.read import as_parameter
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, int_entries
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
            MemoryCitation.objects.filter(memory_id=int(memory_id)).delete()
            MemoryUse.objects.filter(memory_id=int(memory_id)).delete()
    messages = log.events().at(event.payload.positions).of_type(ASSISTANT_MESSAGE)
    for stream in set(messages.values_list("stream_id", flat=True)).difference(event.payload.streams):
        forget_citing(stream)
        cite_again(stream)


# Erased packs: their counts are taken back, as a rebuild would not find them either
_TAKE_BACK = (
    f"UPDATE memories_memoryuse SET given = given - CAST(j.value AS integer) FROM {int_entries()} AS j "
    "WHERE memory_id = CAST(j.key AS integer)"
)


def own_memories(marks: Iterable[str]) -> set[int]:
    """Return the ids of the store's own entities in a pack, from the keys of its marks."""
    return set(map(local_id, marks)) - {0}


def forget_packs(positions: Sequence[int]) -> None:
    sent = ContextPack.objects.filter(id__in=as_parameter(IDS, positions))
    packs = list(sent.annotate(occurred_at=log.event_column("occurred_at")))
    if not packs:
        return
    sent.delete()
    memories = {pack.id: own_memories(pack.marks) for pack in packs}
    pruned = _last_pruned(set().union(*memories.values()))
    counts: Counter[int] = Counter()
    for position, ids in memories.items():
        counts.update(memory_id for memory_id in ids if position > pruned.get(memory_id, 0))
    rows.execute(_TAKE_BACK, [json.dumps(counts)])
    _recompute_last_given(list(counts), until=max(pack.occurred_at for pack in packs))
    unused = dict.fromkeys(map(str, Use), 0)
    MemoryUse.objects.filter(memory_id__in=as_parameter(IDS, counts), **unused).delete()


# Position at which the counts of a memory were last pruned: uses before it are not in the counts
def _last_pruned(ids: Collection[int]) -> dict[int, int]:
    pruned: dict[int, int] = {}
    for position, payload in log.events().of_type("memories.uses_pruned").payloads().items():
        pruned |= dict.fromkeys(set(payload["memory_ids"]).intersection(ids), position)
    return pruned


# Where last_given_at may have come from an erased pack
def _recompute_last_given(ids: Sequence[int], *, until: str) -> None:
    in_doubt = MemoryUse.objects.filter(memory_id__in=as_parameter(IDS, ids), last_given_at__lte=clock.from_text(until))
    doubtful = set(in_doubt.values_list("memory_id", flat=True))
    if not doubtful:
        return
    last: dict[int, str] = {}
    pruned = _last_pruned(doubtful)
    packs = ContextPack.objects.annotate(occurred_at=log.event_column("occurred_at")).filter(occurred_at__lte=until)
    for pack in packs.only("marks"):
        for memory_id in own_memories(pack.marks) & doubtful:
            if pack.id > pruned.get(memory_id, 0):
                last[memory_id] = max(last.get(memory_id, ""), pack.occurred_at)
    for position, payload in log.events().of_type(MEMORIES_USED).payloads().items():
        used_at = clock.to_text(clock.from_text(payload["used_at"]))
        for memory_id in doubtful.intersection(map(int, payload["uses"].get(Use.GIVEN, {}))):
            if position > pruned.get(memory_id, 0):
                last[memory_id] = max(last.get(memory_id, ""), used_at)
    for memory_id in doubtful:
        moment = clock.from_text(last[memory_id]) if memory_id in last else None
        MemoryUse.objects.filter(memory_id=memory_id).update(last_given_at=moment)
