"""Taking back what context packs gave, once they are erased: a rebuild can't know of them either."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from memories.uses.events import MEMORIES_USED, Use
from memoryhub.core import clock
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, entries, int_elements, int_entries, json_text

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
_IN_DOUBT = f"SELECT memory_id FROM memories_memoryuse WHERE memory_id IN {IDS} AND last_given_at <= %s"
_STILL_GIVEN = (
    "SELECT p.id, p.marks, e.occurred_at FROM memories_contextpack p JOIN raw_events e ON e.position = p.id "
    "WHERE e.occurred_at <= %s"
)
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
    """Return the ids of the store's own things that a pack told, by the keys of its marks."""
    references = (key.rpartition(" ")[2] for key in marks)
    return {int(each[1:]) for each in references if each[:1] == "#" and each[1:].isdecimal()}


def forget_packs(positions: Sequence[int]) -> None:
    """Drop the rows of these packs, and what was counted of them."""
    packs = rows.fetch(_PACKS, [json.dumps(list(positions))])
    if not packs:
        return
    rows.execute(f"DELETE FROM memories_contextpack WHERE id IN {IDS}", [json.dumps([each[0] for each in packs])])
    told = {position: own_memories(json.loads(marks)) for position, marks, _ in packs}
    pruned = _pruned({each for ids in told.values() for each in ids})
    counts = Counter(each for position, ids in told.items() for each in ids if position > pruned.get(each, 0))
    listed = json.dumps(sorted(counts))
    rows.execute(_TAKE_BACK, [json.dumps({str(each): number for each, number in counts.items()})])
    _mend_last(listed, until=max(occurred for _, _, occurred in packs))
    rows.execute(_UNUSED, [listed])


def _pruned(ids: Iterable[int]) -> dict[int, int]:
    """Return where in the log the use of memories was last forgotten: what was counted before is not counted now."""
    return dict(rows.fetch(_PRUNED, [json.dumps(sorted(ids))]))


def _mend_last(listed: str, *, until: str) -> None:
    """Find anew when those were last given whose last time was that of a pack which is gone."""
    in_doubt = [row[0] for row in rows.fetch(_IN_DOUBT, [listed, rows.time_value(clock.from_text(until))])]
    if not in_doubt:
        return
    last: dict[int, str] = {}
    pruned = _pruned(in_doubt)
    wanted = set(in_doubt)
    for position, marks, occurred in rows.fetch(_STILL_GIVEN, [until]):
        for each in own_memories(json.loads(marks)) & wanted:
            if position > pruned.get(each, 0):
                last[each] = max(last.get(each, ""), occurred)
    for position, key, used_at in rows.fetch(_NOTED, [json.dumps(in_doubt)]):
        if position > pruned.get(int(key), 0):
            last[int(key)] = max(last.get(int(key), ""), clock.to_text(clock.from_text(used_at)))
    for each in in_doubt:
        moment = last.get(each)
        rows.execute(_SET_LAST, [rows.time_value(clock.from_text(moment)) if moment else None, each])
