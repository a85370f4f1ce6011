"""Relations that a selection removed, and whether undo makes them again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from governance.taint.perform import relations_as_made
from governance.taint.schemas import Left, Step
from governance.taint.selecting import listed
from memories.events import RELATION_CREATED, RELATION_DELETED, RelationCreated
from memories.models import Relation
from memoryhub.core import rows
from memoryhub.core.entities import find_entities

# Each relation between the same ends and of the same type as one of these, when it was made and when it was removed.
_CHANGES = f"""
WITH said AS (
    SELECT position, actor, json_extract(payload_json, '$.source_id') AS source,
        json_extract(payload_json, '$.target_id') AS target, json_extract(payload_json, '$.relation') AS relation
    FROM raw_events WHERE event_type = '{RELATION_CREATED.name}' AND payload_json IS NOT NULL
),
same AS MATERIALIZED (
    SELECT s.* FROM said s JOIN said w ON s.source = w.source AND s.target = w.target AND s.relation = w.relation
        WHERE w.position IN (SELECT value FROM json_each(%s)) GROUP BY s.position
)
SELECT position, actor, 1, position, source, target, relation FROM same
    WHERE position NOT IN (SELECT id FROM quarantine)
UNION ALL SELECT e.position, e.actor, 0, s.position, s.source, s.target, s.relation FROM same s
    JOIN raw_events e ON e.stream_id = 'relation:' || s.position AND e.event_type = '{RELATION_DELETED.name}'
ORDER BY 1
"""

Triple = tuple[int, int, str]


class Change(NamedTuple):
    """A relation was made, or removed."""

    position: int
    actor: str
    made: bool
    relation_id: int


@dataclass(frozen=True, slots=True)
class RelationReversal:
    """The steps that make relations again which some events removed.

    A relation that is made again has a new id: what counts is its two ends and its type.
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
        made = relations_as_made({change.relation_id for every in histories.values() for change in every})
        ends = set(find_entities(end for each in made.values() for end in (each.source_id, each.target_id)))
        present = self._present(made)
        yield from (Left(id=each, title="Relation", why="erased since") for each in wanted - set(made))
        for triple, changes in histories.items():
            yield from self._of_one(changes, is_present=triple in present, has_ends=set(triple[:2]) <= ends)

    def _histories(self, wanted: set[int]) -> dict[Triple, list[Change]]:
        histories: dict[Triple, list[Change]] = {}
        for position, actor, is_made, relation_id, source, target, relation in rows.fetch(_CHANGES, [listed(wanted)]):
            if position not in self.void:
                change = Change(position, actor, bool(is_made), relation_id)
                histories.setdefault((source, target, relation), []).append(change)
        return histories

    def _present(self, made: Mapping[int, RelationCreated]) -> set[Triple]:
        found = Relation.objects.filter(source_id__in={each.source_id for each in made.values()})
        known = found.values_list("id", "source_id", "target_id", "relation")
        return {(source, target, relation) for each, source, target, relation in known if each not in self.going}

    def _of_one(self, changes: list[Change], *, is_present: bool, has_ends: bool) -> Iterator[Step | Left]:
        last = changes[-1]
        removed = next((each.relation_id for each in changes if each.position in self.tainted and not each.made), 0)
        if not removed:
            return
        is_changed = last.position not in self.tainted
        if is_changed and not self.include_changed:
            why = f"changed since by {last.actor} at #{last.position}"
            yield Left(id=removed, title="Relation", why=why)
            return
        counting = takewhile(lambda each: each.position not in self.tainted, changes) if is_changed else changes
        kept = [each for each in counting if each.position not in self.tainted]
        if not kept or not kept[-1].made or is_present:
            return
        if has_ends:
            yield Step(do="relate", id=kept[-1].relation_id)
        else:
            yield Left(id=removed, title="Relation", why="one of its ends is not there any more")
