"""Relations that a selection removed, and whether undo makes them again."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from governance.taint.perform import relations_as_made
from governance.taint.selecting import listed
from memories.events import RELATION_CREATED, RELATION_DELETED
from memories.models import Relation
from memories.models.link import BOTH_WAYS, NEVER_ROUND, statement
from memoryhub.core import rows
from memoryhub.core.dialect import IDS, TEXTS, json_int, json_text
from memoryhub.core.entities import find_entities
from memoryhub.core.rollback import Left, Reach, Step

# When each relation that says the same as one of these was made, and when it was removed.
_CHANGES = f"""
WITH said AS (
    SELECT position, actor, {json_int("payload_json", "source_id")} AS source,
        {json_int("payload_json", "target_id")} AS target, {json_text("payload_json", "relation")} AS relation
    FROM raw_events WHERE event_type = '{RELATION_CREATED.name}' AND payload_json IS NOT NULL
),
same AS MATERIALIZED (
    SELECT s.* FROM said s JOIN said w ON s.relation = w.relation AND (
            s.source = w.source AND s.target = w.target
            OR s.source = w.target AND s.target = w.source AND s.relation IN {TEXTS}
        )
        WHERE w.position IN {IDS} GROUP BY s.position
)
SELECT position, actor, 1, position, source, target, relation FROM same
    WHERE position NOT IN (SELECT id FROM quarantine)
UNION ALL SELECT e.position, e.actor, 0, s.position, s.source, s.target, s.relation FROM same s
    JOIN raw_events e ON e.stream_id = 'relation:' || s.position AND e.event_type = '{RELATION_DELETED.name}'
ORDER BY 1
"""

Statement = tuple[str, int, int]


class Change(NamedTuple):
    """A relation was made, or removed."""

    position: int
    actor: str
    made: bool
    relation_id: int


@dataclass(frozen=True, slots=True)
class RelationReversal:
    """The steps that make relations again which some events removed.

    A relation that is made again has a new id: what counts is what it says.
    """

    tainted: Collection[int]
    void: Collection[int]
    going: Collection[int]
    """Ids of relations that the plan sets aside."""
    include_changed: bool
    """Whether to undo what others changed since, too."""

    def parts(self, removed: Iterable[int]) -> Iterator[Step | Left]:
        """Yield a step for each relation to make again, and what is left."""
        wanted = set(removed)
        histories = self._histories(wanted)
        known = {change.relation_id for every in histories.values() for change in every}
        yield from (Left(id=each, title="Relation", why="erased since") for each in wanted - known)
        decided = [self._decided(changes) for changes in histories.values()]
        yield from (each for each in decided if isinstance(each, Left))
        yield from self._possible([each for each in decided if isinstance(each, int)])

    def _histories(self, wanted: set[int]) -> dict[Statement, list[Change]]:
        histories: dict[Statement, list[Change]] = {}
        found = rows.fetch(_CHANGES, [json.dumps(sorted(BOTH_WAYS)), listed(wanted)])
        for position, actor, is_made, relation_id, source, target, relation in found:
            if position not in self.void:
                change = Change(position, actor, bool(is_made), relation_id)
                histories.setdefault(statement(relation, source, target), []).append(change)
        return histories

    def _decided(self, changes: list[Change]) -> int | Left | None:
        """Return which relation is to be there, or why that is left; None where none is to be."""
        last = changes[-1]
        removed = next((each.relation_id for each in changes if each.position in self.tainted and not each.made), 0)
        if not removed:
            return None
        is_changed = last.position not in self.tainted
        if is_changed and not self.include_changed:
            return Left(id=removed, title="Relation", why=f"changed since by {last.actor} at #{last.position}")
        counting = takewhile(lambda each: each.position not in self.tainted, changes) if is_changed else changes
        kept = [each for each in counting if each.position not in self.tainted]
        return kept[-1].relation_id if kept and kept[-1].made else None

    def _possible(self, wanted: Sequence[int]) -> Iterator[Step | Left]:
        """Yield steps for those that can be there, the latest first, and what is left."""
        made = relations_as_made(wanted)
        ends = set(find_entities(end for each in made.values() for end in (each.source_id, each.target_id)))
        present = [
            row[1:]
            for row in Relation.objects.values_list("id", "relation", "source_id", "target_id")
            if row[0] not in self.going
        ]
        said = {statement(*each) for each in present}
        for each in sorted(made, reverse=True):
            row = (made[each].relation, made[each].source_id, made[each].target_id)
            if not set(row[1:]) <= ends:
                yield Left(id=each, title="Relation", why="one of its ends is not there any more")
            elif statement(*row) in said:
                continue
            elif _closes_circle(row, present):
                yield Left(id=each, title="Relation", why="it would close a circle with relations made since")
            else:
                present.append(row)
                yield Step(do="relate", id=each)


def plan_relations(reach: Reach) -> Iterator[Step | Left]:
    """Yield what makes relations again that the selection removed."""
    reversal = RelationReversal(reach.tainted, reach.void, reach.going, reach.include_changed)
    yield from reversal.parts(reach.things[RELATION_DELETED.rollback.group])


def _closes_circle(row: Statement, present: Sequence[Statement]) -> bool:
    relation, source, target = row
    if relation not in NEVER_ROUND:
        return False
    reached, waiting = {target}, [target]
    while waiting:
        here = waiting.pop()
        further = {end for name, start, end in present if name == relation and start == here} - reached
        reached |= further
        waiting += further
    return source in reached
