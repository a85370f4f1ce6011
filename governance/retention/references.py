"""What keeps a thing because something else stays: relations, lineage, evidence, and what decisions cite.

A thing that others were made from cannot go alone: a rebuild without it would come out different, and an answer that
names it would lead nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from governance.retention.candidates import Candidate
from memories.uses.counting import named_in
from memoryhub.config.retention_rules import What
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

Sorts = dict[What, list[int]]
"""Ids of things by what they are."""


class Tie(NamedTuple):
    """As long as one stays, so does the other."""

    stays: int
    kept: int
    keeper: str
    """What is said of it, as ``kind:id``."""


_AMONG = f"IN {IDS}"
_STANDS = "d.status IN ('proposed', 'accepted')"
_SESSION, _DECISION, _ITERATION, _COMMIT = What.SESSION, What.DECISION, What.ITERATION, What.COMMIT
_RELATED = (What.DELETED, What.MEMORY, _SESSION, _DECISION, _COMMIT)
_NOT_PROJECT = "source_type <> 'project' AND target_type <> 'project'"
_TIES: tuple[tuple[tuple[What, ...], str], ...] = (
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
"""By the sort of what is kept: as long as the first stays, so does the second."""
_TEXT = (
    "SELECT d.id, d.title || ' ' || d.context || ' ' || d.chosen || ' ' || d.rationale || ' ' || d.alternatives "
    f"FROM decisions_decision d WHERE {_STANDS}"
)
_NOTES = (
    "SELECT a.decision_id, a.value FROM decisions_artifactlink a JOIN decisions_decision d ON d.id = a.decision_id "
    f"WHERE {_STANDS}"
)


def kept_by_ties(found: Sequence[Candidate], cited: Sequence[Tie]) -> dict[int, str]:
    """Return the keepers of things past their age, those of ties among them and to others too.

    Args:
        found: every thing that might go, with what keeps it by itself.
        cited: what decisions cite.
    """
    direct = {each.id: each.keeper for each in found}
    kept = {each: keeper for each, keeper in direct.items() if keeper}
    held_by: dict[int, list[Tie]] = {}
    waiting: list[Tie] = []
    for tie in [*(each for each in cited if each.kept in direct), *ties(sorts(found))]:
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


def sorts(found: Sequence[Candidate]) -> Sorts:
    """Return the ids of things by what they are."""
    grouped: Sorts = {}
    for each in found:
        grouped.setdefault(What(each.what), []).append(each.id)
    return grouped


def ties(things: Sorts) -> Iterator[Tie]:
    """Yield what keeps any of these things as long as something else stays."""
    for whats, sql in _TIES:
        ids = [each for what in whats for each in things.get(what, ())]
        if ids:
            yield from (Tie(*row) for row in rows.fetch(sql, [json.dumps(ids)]))


def citations() -> list[Tie]:
    """Return what decisions that stand name in their texts and notes."""
    return [
        Tie(decision, each, f"cited:{decision}")
        for sql in (_TEXT, _NOTES)
        for decision, text in rows.fetch(sql)
        for each in named_in(text)
    ]


def together(things: Sorts, cited: Sequence[Tie]) -> list[list[int]]:
    """Return things in groups that are tied among themselves, in order of their first ids."""
    leader = {each: each for ids in things.values() for each in ids}

    def find(each: int) -> int:
        while leader[each] != each:
            leader[each] = each = leader[leader[each]]
        return each

    for tie in [*cited, *ties(things)]:
        if tie.stays in leader and tie.kept in leader:
            one, other = sorted((find(tie.stays), find(tie.kept)))
            leader[other] = one
    groups: dict[int, list[int]] = {}
    for each in sorted(leader):
        groups.setdefault(find(each), []).append(each)
    return list(groups.values())
