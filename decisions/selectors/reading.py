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
from memories.uses.events import Use
from memories.uses.notes import note_read
from memoryhub.core import clock
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.quarantine import OUTSIDE, outside_quarantine
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search.retrieval import retrieval
from memoryhub.core.stores import rows

# Decisions shown per side of a lineage, nearest first.
MAX_STEPS = 50


def get_decisions(*, command: DecisionGet) -> list[dict[str, Any]]:
    """Return decisions with their evidence: by id in the given order, of a topic, or behind a file, best first.

    Raises:
        NotFound: an id is unknown, or no decision was found for the topic or file.
        Invalid: not exactly one of ``ids``, ``topic`` and ``file_path`` is given.
    """
    with retrieval("decisions", command):
        given = [name for name in ("ids", "topic", "file_path") if getattr(command, name)]
        if len(given) != 1:
            raise Invalid(f"give one of ids, topic and file_path; got {' and '.join(given) or 'none'}")
        found = views(_wanted(command))
        note_read(Use.FETCHED, [decision["id"] for decision in found])
        if not command.lineage:
            return found
        return [{**decision, "lineage": lineage_of(decision["id"])} for decision in found]


def _wanted(command: DecisionGet) -> list[Decision]:
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
        raise NotFound(f"there is no decision behind {file_path[:200]!r}; search for its subject instead")
    return find_decisions([decision_id for decision_id, _ in found])


def lineage_of(decision_id: int) -> dict[str, Any]:
    """Return a decision's ancestors and descendants, nearest first, and the decisions now in force.

    At most ``MAX_STEPS`` per side; ``ancestor_count`` and ``descendant_count`` are the totals.
    """
    before, after = ancestors(decision_id), descendants(decision_id)
    current = heads([decision_id]).get(decision_id, [])
    shown = [*before[:MAX_STEPS], *after[:MAX_STEPS]]
    ids = [*(step.id for step in shown), *current]
    by_id = {decision.id: decision for decision in Decision.objects.filter(id__in=ids)}
    return {
        "ancestors": _steps(before[:MAX_STEPS], by_id),
        "ancestor_count": len(before),
        "descendants": _steps(after[:MAX_STEPS], by_id),
        "descendant_count": len(after),
        "heads": [_brief(by_id[head]) for head in current if head in by_id],
    }


def _steps(steps: Sequence[Step], by_id: dict[int, Decision]) -> list[dict[str, Any]]:
    return [
        {**_brief(by_id[step.id]), "depth": step.depth, "relation": step.relation, "via": step.via}
        for step in steps
        if step.id in by_id
    ]


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
        matching = filtered(command)
        parts = decode_cursor(command.cursor, (int,))
        rest = matching.filter(id__lt=parts[0]) if parts else matching
        found = list(rest.order_by("-id")[: command.limit + 1])
        shown = found[: command.limit]
        return page(
            [{"id": decision.id, "title": decision.title} for decision in shown]
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
    """Return ids of decisions that start with ``typed``, the newest first."""
    return ids_among(outside_quarantine(Decision.objects.all()), typed)


def count_by_status() -> dict[str, int]:
    """Return the number of decisions of each status."""
    found = outside_quarantine(Decision.objects.all())
    return dict(found.values_list("status").annotate(Count("id")).order_by("status"))
