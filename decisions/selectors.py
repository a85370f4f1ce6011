"""Read decisions with their evidence, edges and lineage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from django.db.models import Count, QuerySet

from decisions.edges import VISIBLE, LineageStep, ancestors, descendants, heads, heads_of
from decisions.models import IN_FORCE, NEVER_ACCEPTED, ArtifactKind, Decision, DecisionStatus
from decisions.present import decision_line
from decisions.schemas import DecisionGet, DecisionList, DecisionView
from memories.selectors.memories import ids_among
from memories.uses.events import Use
from memories.uses.notes import note_read
from memories.validity.anchoring import anchor_names
from memories.validity.checks import EntryCheck, checks_in
from memories.validity.selectors import marks_of
from memoryhub.core import clock
from memoryhub.core.entities import not_found
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.quarantine import OUTSIDE, outside_quarantine, quarantine_marks
from memoryhub.core.paging import newest_first
from memoryhub.core.schemas import Listing
from memoryhub.core.search import retrieval
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_list

_DERIVED = {"edges", "superseded_by", "heads", "commits", "artifacts", "anchors", "marks", "quarantine"}
_STORED = [name for name in DecisionView.model_fields if name not in _DERIVED]


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
    by_id = Decision.objects.in_bulk(list(ids))
    missing = [decision_id for decision_id in ids if decision_id not in by_id]
    if missing:
        raise not_found("decision", missing)
    return [by_id[decision_id] for decision_id in ids]


def views(decisions: Sequence[Decision], *, with_heads: bool = True) -> list[dict[str, Any]]:
    """Return decisions as JSON data with edges and evidence, in six queries for any number of them.

    ``with_heads=False`` skips the replacements of superseded ones: their chains may be long.
    """
    ids = [decision.id for decision in decisions]
    edges, superseded_by = _edges(ids), _superseded_by(decisions)
    commits, artifacts = commits_of(ids), _artifacts(ids)
    quarantine = quarantine_marks(ids)
    anchors = anchor_names(ids)
    marks = marks_of(ids)
    superseded = {decision.id for decision in decisions if decision.status == DecisionStatus.SUPERSEDED}
    replaced = heads([key for key in ids if key in superseded_by or key in superseded]) if with_heads else {}
    results = []
    for decision in decisions:
        view = DecisionView(
            **{name: getattr(decision, name) for name in _STORED},
            edges=edges.get(decision.id, []),
            superseded_by=superseded_by.get(decision.id, []),
            heads=replaced.get(decision.id, []),
            commits=commits.get(decision.id, []),
            artifacts=artifacts.get(decision.id, []),
            anchors=anchors.get(decision.id, []),
            marks=[mark.data() for mark in marks.get(decision.id, ())],
            quarantine=quarantine.get(decision.id, ""),
        )
        results.append(view.model_dump(mode="json"))
    return results


def commits_of(ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Map decisions to their commits, the latest first."""
    by_decision = _by_id(
        ("id", "sha", "message", "date", "link_type"),
        "SELECT l.decision_id, c.id, c.sha, c.message, c.committed_at, l.link_type FROM decisions_commitlink l "
        f"JOIN sessions_app_commit c ON c.id = l.commit_id WHERE l.decision_id IN {IDS} "
        f"AND l.event {OUTSIDE} AND c.id {OUTSIDE} ORDER BY c.committed_at DESC, c.id DESC",
        ids,
    )
    for commit in chain.from_iterable(by_decision.values()):
        commit["message"] = commit["message"].split("\n", 1)[0]
        commit["date"] = clock.day(rows.time_text(commit["date"]))
    return by_decision


def decisions_of_commits(commit_ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Map commits to their decisions and link types, the earliest first."""
    return _by_id(
        ("id", "title", "link_type"),
        "SELECT l.commit_id, d.id, d.title, l.link_type FROM decisions_commitlink l "
        f"JOIN decisions_decision d ON d.id = l.decision_id WHERE l.commit_id IN {IDS} "
        f"AND l.event {OUTSIDE} AND d.id {OUTSIDE} ORDER BY d.id",
        commit_ids,
    )


def _edges(ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    return _by_id(
        ("relation", "to", "title"),
        "SELECT e.from_id, e.relation, e.to_id, d.title FROM decisions_decisionedge e "
        f"JOIN decisions_decision d ON d.id = e.to_id WHERE e.from_id IN {IDS} "
        f"AND {VISIBLE} ORDER BY e.relation, e.to_id",
        ids,
    )


# A decision in force has none: those that name it are proposed or rejected. A proposal may give way to another.
def _superseded_by(decisions: Sequence[Decision]) -> dict[int, list[int]]:
    retired = [decision.id for decision in decisions if decision.status not in IN_FORCE]
    heirs = rows.fetch(
        "SELECT e.to_id, e.from_id, heir.status FROM decisions_decisionedge e "
        "JOIN decisions_decision heir ON heir.id = e.from_id WHERE e.relation = 'supersedes' "
        f"AND e.to_id IN {IDS} AND {VISIBLE} ORDER BY e.from_id",
        [json_list(retired)],
    )
    superseded = {decision.id for decision in decisions if decision.status == DecisionStatus.SUPERSEDED}
    accepted: dict[int, list[int]] = {}
    proposed: dict[int, list[int]] = {}
    for end, start, status in heirs:
        if status not in NEVER_ACCEPTED:
            accepted.setdefault(end, []).append(start)
        elif status == DecisionStatus.PROPOSED and end in superseded:
            proposed.setdefault(end, []).append(start)
    return proposed | accepted


def _artifacts(ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    return _by_id(
        ("kind", "value"),
        f"SELECT decision_id, kind, value FROM decisions_artifactlink WHERE decision_id IN {IDS} "
        f"AND event {OUTSIDE} ORDER BY kind, value",
        ids,
    )


_CHECKS = f"""
SELECT d.id, d.title, a.value FROM decisions_artifactlink a JOIN decisions_decision d ON d.id = a.decision_id
WHERE a.kind = '{ArtifactKind.CHECK}' AND a.event {OUTSIDE} AND d.id {OUTSIDE} AND {{condition}}
ORDER BY d.id, a.value"""


def decision_checks(decision_id: int | None = None) -> list[EntryCheck]:
    """Return the checks of accepted decisions, or of one decision."""
    if decision_id is None:
        lines = rows.fetch(_CHECKS.format(condition="d.status = %s"), [DecisionStatus.ACCEPTED])
    else:
        lines = rows.fetch(_CHECKS.format(condition="d.id = %s"), [decision_id])
    return checks_in("decision", lines)


# By their first column; the others have these names
def _by_id(names: Sequence[str], sql: str, ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    by_id: dict[int, list[dict[str, Any]]] = {}
    for key, *values in rows.fetch(sql, [json_list(ids)]):
        by_id.setdefault(key, []).append(dict(zip(names, values, strict=True)))
    return by_id


# Decisions shown per side of a lineage, nearest first.
MAX_STEPS = 50


def get_decisions(*, command: DecisionGet) -> list[dict[str, Any]]:
    """Return decisions with their evidence: by id in the given order, of a topic, or behind a file, best first.

    Raises:
        NotFound: an id is unknown, or no decision was found for the topic or file.
        Invalid: not exactly one of ``ids``, ``topic`` and ``file_path`` is given.
    """
    with retrieval("decisions", command):
        criteria = [name for name in ("ids", "topic", "file_path") if getattr(command, name)]
        if len(criteria) != 1:
            raise Invalid(f"give one of ids, topic and file_path; got {' and '.join(criteria) or 'none'}")
        decisions = views(_selected(command))
        note_read(Use.FETCHED, [decision["id"] for decision in decisions])
        if not command.lineage:
            return decisions
        return [{**decision, "lineage": lineage_of(decision["id"])} for decision in decisions]


def _selected(command: DecisionGet) -> list[Decision]:
    if command.ids:
        return find_decisions(command.ids)
    if command.topic:
        return _of_topic(command.topic, command.limit)
    return _behind(command.file_path, command.limit)


# Decisions in force first, then the superseded ones; each newest first.
def _of_topic(topic: str, limit: int) -> list[Decision]:
    chain = outside_quarantine(Decision.objects.filter(topic=topic))
    in_force = list(chain.exclude(status="superseded").order_by("-id")[:limit])
    superseded = list(chain.filter(status="superseded").order_by("-id")[: limit - len(in_force)])
    if not in_force and not superseded:
        raise NotFound(f"there is no decision on topic {topic!r}; search for its subject instead")
    return in_force + superseded


# Ranks by the number of commits that touch the path; a direct file artifact counts as one. `path0` is the upper bound
# of a folder's range: `0` follows `/`.
def _behind(file_path: str, limit: int) -> list[Decision]:
    path = file_path.strip().removeprefix("./").rstrip("/")
    inside = (path, f"{path}/", f"{path}0")
    weights = rows.fetch(
        "WITH touching(decision_id, weight) AS ("
        "SELECT l.decision_id, count(DISTINCT l.commit_id) FROM decisions_commitfile f "
        "JOIN decisions_commitlink l ON l.commit_id = f.commit_id "
        "WHERE (f.path = %s OR (f.path >= %s AND f.path < %s)) "
        f"AND l.event {OUTSIDE} AND l.commit_id {OUTSIDE} GROUP BY l.decision_id "
        "UNION ALL SELECT decision_id, 1 FROM decisions_artifactlink "
        f"WHERE kind = 'file_path' AND (value = %s OR (value >= %s AND value < %s)) AND event {OUTSIDE}) "
        f"SELECT decision_id, sum(weight) FROM touching WHERE decision_id {OUTSIDE} "
        "GROUP BY decision_id ORDER BY 2 DESC, 1 DESC LIMIT %s",
        [*inside, *inside, limit],
    )
    if not weights:
        raise NotFound(f"there is no decision behind {file_path[:200]!r}; search for its subject instead")
    return find_decisions([decision_id for decision_id, _ in weights])


def lineage_of(decision_id: int) -> dict[str, Any]:
    """Return a decision's ancestors and descendants, nearest first, and the decisions now in force.

    At most ``MAX_STEPS`` per side; ``ancestor_count`` and ``descendant_count`` are the totals.
    """
    before = ancestors(decision_id)
    after = descendants(decision_id)
    current = heads_of(decision_id)
    nearest = [*before[:MAX_STEPS], *after[:MAX_STEPS]]
    by_id = Decision.objects.in_bulk([*(step.id for step in nearest), *current])
    return {
        "ancestors": _steps(before[:MAX_STEPS], by_id),
        "ancestor_count": len(before),
        "descendants": _steps(after[:MAX_STEPS], by_id),
        "descendant_count": len(after),
        "heads": [_brief(by_id[head]) for head in current if head in by_id],
    }


def _steps(steps: Sequence[LineageStep], by_id: dict[int, Decision]) -> list[dict[str, Any]]:
    views = []
    for step in steps:
        if step.id in by_id:
            place = {"depth": step.depth, "relation": step.relation, "via": step.via}
            views.append(_brief(by_id[step.id]) | place)
    return views


def _brief(decision: Decision) -> dict[str, Any]:
    return {
        "id": decision.id,
        "title": decision.title,
        "status": decision.status,
        "decided_at": clock.day(decision.decided_at),
    }


def list_decisions(*, command: DecisionList) -> Listing:
    """Return a page of decisions, the latest recorded first; concurrent writes neither skip nor repeat any."""
    with retrieval("decision_list", command):
        shape = _titles if command.compact else partial(views, with_heads=False)
        return newest_first(filtered(command), command, shape, decision_line)


def _titles(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    return [{"id": decision.id, "title": decision.title} for decision in decisions]


def filtered(command: DecisionList) -> QuerySet[Decision]:
    """Return the decisions that match the filters."""
    filters = {
        "status": command.status,
        "impact": command.impact,
        "phase": command.phase,
        "topic": command.topic,
        "iteration_id": command.iteration_id,
    }
    matching = Decision.objects.filter(**{key: value for key, value in filters.items() if value})
    visible: QuerySet[Decision] = outside_quarantine(matching)
    return visible.exclude(review="") if command.review else visible


def suggest_decisions(typed: str) -> list[str]:
    """Return ids of decisions that start with ``typed``, the newest first."""
    return ids_among(outside_quarantine(Decision.objects.all()), typed)


def count_by_status() -> dict[str, int]:
    """Return the number of decisions of each status."""
    visible = outside_quarantine(Decision.objects.all())
    return dict(visible.values_list("status").annotate(Count("id")).order_by("status"))
