"""Relations that were taken away, and whether they can come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from governance.taint.perform import relations_as_made
from governance.taint.schemas import Left, Step
from memories.models import Relation
from memoryhub.core.entities import find_entities


def relations_back(ids: Iterable[int]) -> Iterator[Step | Left]:
    """Yield what makes relations again that are gone: those whose ends are there, and that nobody made again."""
    wanted = set(ids)
    gone = wanted - set(Relation.objects.filter(id__in=wanted).values_list("id", flat=True))
    made = relations_as_made(gone)
    ends = find_entities(end for each in made.values() for end in (each.source_id, each.target_id))
    said = {(each.source_id, each.target_id, each.relation) for each in made.values()}
    again = Relation.objects.filter(source_id__in=[source for source, _, _ in said])
    present = set(again.values_list("source_id", "target_id", "relation"))
    for each in sorted(gone):
        payload = made.get(each)
        if payload is None or not {payload.source_id, payload.target_id} <= set(ends):
            yield Left(id=each, title="Relation", why="one of its ends is not there any more")
        elif (payload.source_id, payload.target_id, payload.relation) in present:
            yield Left(id=each, title="Relation", why="someone made it again")
        else:
            yield Step(do="relate", id=each)
