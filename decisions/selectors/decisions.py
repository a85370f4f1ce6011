from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decisions.models import NEVER_ACCEPTED, Decision, DecisionStatus
from decisions.schemas import DecisionView
from decisions.selectors.edges import VISIBLE, heads
from memoryhub.core import clock
from memoryhub.core.entities import not_found
from memoryhub.core.log.quarantine import OUTSIDE, quarantine_marks
from memoryhub.core.stores import rows

_STORED = [
    name
    for name in DecisionView.model_fields
    if name not in ("edges", "superseded_by", "heads", "commits", "artifacts", "quarantine")
]

_OPEN = (DecisionStatus.PROPOSED, DecisionStatus.ACCEPTED)


def find_decision(decision_id: int) -> Decision:
    """Return the decision of that id.

    Raises:
        NotFound: there is none.
    """
    return find_decisions([decision_id])[0]


def find_decisions(ids: Sequence[int]) -> list[Decision]:
    """Return decisions in the order of ``ids``.

    Raises:
        NotFound: some are missing; the message names them.
    """
    found = {decision.id: decision for decision in Decision.objects.filter(id__in=list(ids))}
    missing = [decision_id for decision_id in ids if decision_id not in found]
    if missing:
        raise not_found("decision", missing)
    return [found[decision_id] for decision_id in ids]


def views(decisions: Sequence[Decision], *, with_heads: bool = True) -> list[dict[str, Any]]:
    """Return decisions as JSON data with edges and evidence, in six queries for any number of them.

    ``with_heads=False`` skips the replacements of superseded ones: their chains may be long.
    """
    ids = [decision.id for decision in decisions]
    edges, superseded_by = _edges(ids), _superseded_by(decisions)
    commits, artifacts = commits_of(ids), _artifacts(ids)
    quarantine = quarantine_marks(ids)
    superseded = {decision.id for decision in decisions if decision.status == DecisionStatus.SUPERSEDED}
    replaced = heads([key for key in ids if key in superseded_by or key in superseded]) if with_heads else {}
    return [
        DecisionView(
            **{name: getattr(decision, name) for name in _STORED},
            edges=edges.get(decision.id, []),
            superseded_by=superseded_by.get(decision.id, []),
            heads=replaced.get(decision.id, []),
            commits=commits.get(decision.id, []),
            artifacts=artifacts.get(decision.id, []),
            quarantine=quarantine.get(decision.id, ""),
        ).model_dump(mode="json")
        for decision in decisions
    ]


def commits_of(ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Map decisions to their commits, the latest first."""
    found = _for_each(
        "SELECT l.decision_id, c.id, c.sha, c.message, c.committed_at, l.link_type FROM decisions_commitlink l "
        "JOIN sessions_app_commit c ON c.id = l.commit_id WHERE l.decision_id IN ({marks}) "
        f"AND l.event {OUTSIDE} AND c.id {OUTSIDE} "
        "ORDER BY c.committed_at DESC, c.id DESC",
        ids,
    )
    return _grouped(
        (
            decision_id,
            {
                "id": commit_id,
                "sha": sha,
                "message": message.split("\n", 1)[0],
                "date": clock.day(rows.time_text(committed_at)),
                "link_type": link_type,
            },
        )
        for decision_id, commit_id, sha, message, committed_at, link_type in found
    )


def decisions_of_commits(commit_ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Map commits to their decisions and link types, the earliest first."""
    found = _for_each(
        "SELECT l.commit_id, d.id, d.title, l.link_type FROM decisions_commitlink l "
        "JOIN decisions_decision d ON d.id = l.decision_id WHERE l.commit_id IN ({marks}) "
        f"AND l.event {OUTSIDE} AND d.id {OUTSIDE} ORDER BY d.id",
        commit_ids,
    )
    return _grouped(
        (commit_id, {"id": decision_id, "title": title, "link_type": link_type})
        for commit_id, decision_id, title, link_type in found
    )


def _edges(ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    found = _for_each(
        "SELECT e.from_id, e.relation, e.to_id, d.title FROM decisions_decisionedge e "
        "JOIN decisions_decision d ON d.id = e.to_id WHERE e.from_id IN ({marks}) "
        f"AND {VISIBLE} ORDER BY e.relation, e.to_id",
        ids,
    )
    return _grouped((start, {"relation": relation, "to": to, "title": title}) for start, relation, to, title in found)


# A decision in force has none: those that name it are proposed or rejected. A proposal may give way to another.
def _superseded_by(decisions: Sequence[Decision]) -> dict[int, list[int]]:
    retired = [decision.id for decision in decisions if decision.status not in _OPEN]
    heirs = _for_each(
        "SELECT e.to_id, e.from_id, heir.status FROM decisions_decisionedge e "
        "JOIN decisions_decision heir ON heir.id = e.from_id WHERE e.relation = 'supersedes' "
        f"AND e.to_id IN ({{marks}}) AND {VISIBLE} ORDER BY e.from_id",
        retired,
    )
    accepted = [(end, start) for end, start, status in heirs if status not in NEVER_ACCEPTED]
    replaced = {end for end, _ in accepted}
    proposed = [row[:2] for row in heirs if row[2] == DecisionStatus.PROPOSED and row[0] not in replaced]
    superseded = {decision.id for decision in decisions if decision.status == DecisionStatus.SUPERSEDED}
    return _grouped([*accepted, *(row for row in proposed if row[0] in superseded)])


def _artifacts(ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    found = _for_each(
        "SELECT decision_id, kind, value FROM decisions_artifactlink WHERE decision_id IN ({marks}) "
        f"AND event {OUTSIDE} ORDER BY kind, value",
        ids,
    )
    return _grouped((decision_id, {"kind": kind, "value": value}) for decision_id, kind, value in found)


def _for_each(sql: str, ids: Sequence[int]) -> list[tuple[Any, ...]]:
    return rows.fetch(sql.format(marks=", ".join(["%s"] * len(ids))), list(ids)) if ids else []


def _grouped(pairs: Any) -> dict[int, list[Any]]:
    grouped: dict[int, list[Any]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return grouped
