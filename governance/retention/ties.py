"""What keeps a thing because something else stays: relations, lineage, evidence, and what decisions cite.

A thing that others were made from cannot go alone: a rebuild without it would come out different, and an answer that
names it would lead nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from memories.uses.citing import named_in
from memoryhub.core import rows


class Tie(NamedTuple):
    """As long as one stays, so does the other."""

    stays: int
    kept: int
    keeper: str
    """What is said of it, as ``kind:id``."""


_AMONG = "IN (SELECT value FROM json_each(%s))"
_STANDS = "d.status IN ('proposed', 'accepted')"
_TIES = (
    "SELECT source_id, target_id, 'relation:' || id FROM memories_relation "
    f"WHERE source_type <> 'project' AND target_type <> 'project' AND target_id {_AMONG}",
    "SELECT target_id, source_id, 'relation:' || id FROM memories_relation "
    f"WHERE source_type <> 'project' AND target_type <> 'project' AND source_id {_AMONG}",
    f"SELECT from_id, to_id, 'lineage:' || from_id FROM decisions_decisionedge WHERE to_id {_AMONG}",
    f"SELECT to_id, from_id, 'lineage:' || to_id FROM decisions_decisionedge WHERE from_id {_AMONG}",
    f"SELECT decision_id, commit_id, 'evidence:' || decision_id FROM decisions_commitlink WHERE commit_id {_AMONG}",
    f"SELECT commit_id, decision_id, 'evidence:' || commit_id FROM decisions_commitlink WHERE decision_id {_AMONG}",
    f"SELECT id, iteration_id, 'belongs:' || id FROM sessions_app_commit WHERE iteration_id {_AMONG}",
    f"SELECT id, iteration_id, 'belongs:' || id FROM decisions_decision WHERE iteration_id {_AMONG}",
    "SELECT m.id, s.id, 'belongs:' || m.id FROM sessions_app_session s "
    f"JOIN raw_events e ON e.session_id = s.session_id AND e.event_type IN ('memory.written', 'memory.revised') "
    f"JOIN memories_memory m ON 'memory:' || m.id = e.stream_id WHERE s.id {_AMONG}",
    "SELECT d.id, s.id, 'belongs:' || d.id FROM sessions_app_session s "
    f"JOIN decisions_decision d ON d.session_id = s.session_id WHERE s.id {_AMONG}",
)
_TEXT = (
    "SELECT d.id, d.title || ' ' || d.context || ' ' || d.chosen || ' ' || d.rationale || ' ' || d.alternatives "
    f"FROM decisions_decision d WHERE {_STANDS}"
)
_NOTES = (
    "SELECT a.decision_id, a.value FROM decisions_artifactlink a JOIN decisions_decision d ON d.id = a.decision_id "
    f"WHERE {_STANDS}"
)


def kept_by_ties(direct: Mapping[int, str], cited: Sequence[Tie]) -> dict[int, str]:
    """Return the keepers of things past their age, those of ties among them and to others too.

    Args:
        direct: every thing that might go, by id, with what keeps it by itself, "" for nothing.
        cited: what decisions cite.
    """
    kept = {each: keeper for each, keeper in direct.items() if keeper}
    held_by: dict[int, list[Tie]] = {}
    waiting: list[Tie] = []
    for tie in [*(each for each in cited if each.kept in direct), *ties(list(direct))]:
        if tie.stays in direct:
            held_by.setdefault(tie.stays, []).append(tie)
        else:
            waiting.append(tie)
    waiting += [tie for each in kept for tie in held_by.get(each, ())]
    while waiting:
        tie = waiting.pop()
        if tie.kept not in kept:
            kept[tie.kept] = tie.keeper
            waiting += held_by.get(tie.kept, ())
    return kept


def ties(ids: Sequence[int]) -> Iterator[Tie]:
    """Yield what keeps any of these things as long as something else stays."""
    listed = [json.dumps(list(ids))]
    for sql in _TIES if ids else ():
        yield from (Tie(*row) for row in rows.fetch(sql, listed))


def citations() -> list[Tie]:
    """Return what decisions that stand name in their texts and notes."""
    return [
        Tie(decision, each, f"cited:{decision}")
        for sql in (_TEXT, _NOTES)
        for decision, text in rows.fetch(sql)
        for each in named_in(text)
    ]


def together(ids: Sequence[int], cited: Sequence[Tie]) -> list[list[int]]:
    """Return things in groups that are tied among themselves, in order of their first ids."""
    leader = {each: each for each in ids}

    def find(each: int) -> int:
        while leader[each] != each:
            leader[each] = each = leader[leader[each]]
        return each

    for tie in [*cited, *ties(ids)]:
        if tie.stays in leader and tie.kept in leader:
            one, other = sorted((find(tie.stays), find(tie.kept)))
            leader[other] = one
    groups: dict[int, list[int]] = {}
    for each in sorted(ids):
        groups.setdefault(find(each), []).append(each)
    return list(groups.values())
