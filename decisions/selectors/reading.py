"""What can be asked of decisions: one or many, a topic's chain, what is behind a file, lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Count, QuerySet

from decisions.models import Decision
from decisions.present import decision_line
from decisions.schemas import DecisionGet, DecisionList
from decisions.selectors.decisions import find_decisions, views
from decisions.selectors.edges import Step, ancestors, descendants, heads
from memories.selectors.tags import ids_among
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.quarantine import OUTSIDE, outside_quarantine
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search.retrieval import retrieval
from memoryhub.core.stores import rows

MAX_STEPS = 50
"""So many decisions of each side of a lineage are shown, nearest first."""


def get_decisions(*, command: DecisionGet) -> list[dict[str, Any]]:
    """Return decisions whole: by id in the order asked for, of a topic, or behind a file, best first.

    Raises:
        NotFound: one of the ids is no decision, or nothing was decided on the topic or the file.
        Invalid: not exactly one of ``ids``, ``topic`` and ``file_path`` is given.
    """
    with retrieval("decisions", command):
        given = [name for name in ("ids", "topic", "file_path") if getattr(command, name)]
        if len(given) != 1:
            raise Invalid(f"give one of ids, topic and file_path; {' and '.join(given) or 'none'} was given")
        found = views(_wanted(command))
        if not command.lineage:
            return found
        return [{**each, "lineage": lineage_of(each["id"])} for each in found]


def _wanted(command: DecisionGet) -> list[Decision]:
    if command.ids:
        return find_decisions(command.ids)
    if command.topic:
        return _of_topic(command.topic, command.limit)
    return _behind(command.file_path, command.limit)


def _of_topic(topic: str, limit: int) -> list[Decision]:
    """Return the chain of a topic: what stands first, then what led to it, the latest first."""
    chain = outside_quarantine(Decision.objects.filter(topic=topic))
    standing = list(chain.exclude(status="superseded").order_by("-id")[:limit])
    before = list(chain.filter(status="superseded").order_by("-id")[: limit - len(standing)])
    if not standing and not before:
        raise NotFound(f"nothing was decided on topic {topic!r} here; decisions without a topic are found by search")
    return standing + before


def _behind(file_path: str, limit: int) -> list[Decision]:
    """Return the decisions behind a file or folder: those with the most commits on it first, then the latest."""
    path = file_path.strip().removeprefix("./").rstrip("/")
    inside = (path, f"{path}/", f"{path}0")
    found = rows.fetch(
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
    if not found:
        raise NotFound(
            f"no decision is behind {file_path[:200]!r}: no commit on it names one; search for its subject instead"
        )
    return find_decisions([decision_id for decision_id, _ in found])


def lineage_of(decision_id: int) -> dict[str, Any]:
    """Return what led to a decision and what came of it, nearest first, and what stands now.

    Of each side at most ``MAX_STEPS`` are shown; ``ancestor_count`` and ``descendant_count`` say how many there are.
    """
    before, after = ancestors(decision_id), descendants(decision_id)
    standing = heads([decision_id]).get(decision_id, [])
    shown = [*before[:MAX_STEPS], *after[:MAX_STEPS]]
    known = {each.id: each for each in Decision.objects.filter(id__in=[*(step.id for step in shown), *standing])}
    return {
        "ancestors": _steps(before[:MAX_STEPS], known),
        "ancestor_count": len(before),
        "descendants": _steps(after[:MAX_STEPS], known),
        "descendant_count": len(after),
        "heads": [_brief(known[head]) for head in standing if head in known],
    }


def _steps(steps: Sequence[Step], known: dict[int, Decision]) -> list[dict[str, Any]]:
    return [
        {**_brief(known[step.id]), "depth": step.depth, "relation": step.relation, "via": step.via}
        for step in steps
        if step.id in known
    ]


def _brief(decision: Decision) -> dict[str, Any]:
    return {
        "id": decision.id,
        "title": decision.title,
        "status": decision.status,
        "decided_at": decision.decided_at.isoformat()[:10],
    }


def list_decisions(*, command: DecisionList) -> Listing:
    """Return a page of decisions, the latest recorded first; others' writes neither skip nor repeat one."""
    with retrieval("decision_list", command):
        matching = filtered(command)
        parts = decode_cursor(command.cursor, (int,))
        rest = matching.filter(id__lt=parts[0]) if parts else matching
        found = list(rest.order_by("-id")[: command.limit + 1])
        shown = found[: command.limit]
        return page(
            [{"id": each.id, "title": each.title} for each in shown]
            if command.compact
            else views(shown, with_heads=False),
            total=matching.count(),
            more=len(found) > command.limit,
            cursor_of=lambda item: encode_cursor(item["id"]),
            line=decision_line,
            max_tokens=command.max_tokens,
        )


def filtered(command: DecisionList) -> QuerySet[Decision]:
    """Return the decisions that match the filters."""
    wanted = {
        "status": command.status,
        "impact": command.impact,
        "phase": command.phase,
        "topic": command.topic,
        "iteration_id": command.iteration_id,
    }
    matching = Decision.objects.filter(**{key: value for key, value in wanted.items() if value})
    found: QuerySet[Decision] = outside_quarantine(matching)
    return found.exclude(review="") if command.review else found


def suggest_decisions(typed: str) -> list[str]:
    """Return ids of decisions that begin with ``typed``, the newest first."""
    return ids_among(outside_quarantine(Decision.objects.all()), typed)


def count_by_status() -> dict[str, int]:
    """Return the number of decisions of each status."""
    found = outside_quarantine(Decision.objects.all())
    return dict(found.values_list("status").annotate(Count("id")).order_by("status"))
