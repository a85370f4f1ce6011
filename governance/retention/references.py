"""Items that protect each other: relations, lineage, evidence, citations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from governance.retention.candidates import Candidate
from memories.uses.counting import named_in
from memoryhub.config.retention_rules import What
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

# Ids by sort of item
Sorts = dict[What, list[int]]


# While ``stays`` exists, ``kept`` is kept
class Reference(NamedTuple):
    stays: int
    kept: int
    # The reason, as ``kind:id``
    keeper: str


_AMONG = f"IN {IDS}"
_IN_FORCE = "d.status IN ('proposed', 'accepted')"
_SESSION, _DECISION, _ITERATION, _COMMIT = What.SESSION, What.DECISION, What.ITERATION, What.COMMIT
_RELATED = (What.DELETED, What.MEMORY, _SESSION, _DECISION, _COMMIT)
_NOT_PROJECT = "source_type <> 'project' AND target_type <> 'project'"
# Projectors of later events read these items, so a rebuild without them would differ (decision 26).
# By sort of the protected item: while the first id exists, the second is kept.
_REFERENCES: tuple[tuple[tuple[What, ...], str], ...] = (
    (
        _RELATED,
        "SELECT source_id, target_id, 'relation:' || id FROM memories_relation "
        f"WHERE {_NOT_PROJECT} AND target_id {_AMONG}",
    ),
    (
        _RELATED,
        "SELECT target_id, source_id, 'relation:' || id FROM memories_relation "
        f"WHERE {_NOT_PROJECT} AND source_id {_AMONG}",
    ),
    ((_DECISION,), f"SELECT from_id, to_id, 'lineage:' || from_id FROM decisions_decisionedge WHERE to_id {_AMONG}"),
    ((_DECISION,), f"SELECT to_id, from_id, 'lineage:' || to_id FROM decisions_decisionedge WHERE from_id {_AMONG}"),
    (
        (_COMMIT,),
        f"SELECT decision_id, commit_id, 'evidence:' || decision_id FROM decisions_commitlink WHERE commit_id {_AMONG}",
    ),
    (
        (_DECISION,),
        f"SELECT commit_id, decision_id, 'evidence:' || commit_id FROM decisions_commitlink WHERE decision_id {_AMONG}",
    ),
    ((_ITERATION,), f"SELECT id, iteration_id, 'belongs:' || id FROM sessions_app_commit WHERE iteration_id {_AMONG}"),
    ((_ITERATION,), f"SELECT id, iteration_id, 'belongs:' || id FROM decisions_decision WHERE iteration_id {_AMONG}"),
    (
        (_SESSION,),
        "SELECT m.id, s.id, 'belongs:' || m.id FROM sessions_app_session s "
        "JOIN raw_events e ON e.session_id = s.session_id AND e.event_type IN ('memory.written', 'memory.revised') "
        f"JOIN memories_memory m ON m.id = CAST(substr(e.stream_id, 8) AS integer) WHERE s.id {_AMONG}",
    ),
    (
        (_SESSION,),
        "SELECT d.id, s.id, 'belongs:' || d.id FROM sessions_app_session s "
        f"JOIN decisions_decision d ON d.session_id = s.session_id WHERE s.id {_AMONG}",
    ),
)
_TEXT = (
    "SELECT d.id, d.title || ' ' || d.context || ' ' || d.chosen || ' ' || d.rationale || ' ' || d.alternatives "
    f"FROM decisions_decision d WHERE {_IN_FORCE}"
)
_NOTES = (
    "SELECT a.decision_id, a.value FROM decisions_artifactlink a JOIN decisions_decision d ON d.id = a.decision_id "
    f"WHERE {_IN_FORCE}"
)


# ``found``: candidates with what protects them by themselves; ``cited``: citations by decisions. Returns the keepers,
# following references among candidates to any depth.
def kept_by_references(found: Sequence[Candidate], cited: Sequence[Reference]) -> dict[int, str]:
    direct = {candidate.id: candidate.keeper for candidate in found}
    kept = {thing_id: keeper for thing_id, keeper in direct.items() if keeper}
    held_by: dict[int, list[Reference]] = {}
    waiting: list[Reference] = []
    for reference in [*(citation for citation in cited if citation.kept in direct), *references(sorts(found))]:
        if reference.stays in direct:
            held_by.setdefault(reference.stays, []).append(reference)
        else:
            waiting.append(reference)
    waiting += [reference for thing_id in kept for reference in held_by.get(thing_id, ())]
    while waiting:
        reference = waiting.pop()
        if reference.kept not in kept:
            kept[reference.kept] = reference.keeper
            waiting += held_by.get(reference.kept, ())
    return kept


def sorts(found: Sequence[Candidate]) -> Sorts:
    grouped: Sorts = {}
    for candidate in found:
        grouped.setdefault(What(candidate.what), []).append(candidate.id)
    return grouped


def references(things: Sorts) -> Iterator[Reference]:
    for whats, sql in _REFERENCES:
        ids = [thing_id for what in whats for thing_id in things.get(what, ())]
        if ids:
            yield from (Reference(*row) for row in rows.fetch(sql, [json.dumps(ids)]))


# Ids that the texts and notes of decisions in force mention
def citations() -> list[Reference]:
    return [
        Reference(decision, entity_id, f"cited:{decision}")
        for sql in (_TEXT, _NOTES)
        for decision, text in rows.fetch(sql)
        for entity_id in named_in(text)
    ]


# Items that reference each other are erased in one transaction, or not at all (decision 26)
def group_referenced(things: Sorts, cited: Sequence[Reference]) -> list[list[int]]:
    leader = {thing_id: thing_id for ids in things.values() for thing_id in ids}

    def find(thing_id: int) -> int:
        while leader[thing_id] != thing_id:
            leader[thing_id] = thing_id = leader[leader[thing_id]]
        return thing_id

    for reference in [*cited, *references(things)]:
        if reference.stays in leader and reference.kept in leader:
            first, second = sorted((find(reference.stays), find(reference.kept)))
            leader[second] = first
    groups: dict[int, list[int]] = {}
    for thing_id in sorted(leader):
        groups.setdefault(find(thing_id), []).append(thing_id)
    return list(groups.values())
