"""Which commits touched governed files after someone had looked at what governs them last."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from governance.staleness.governing import Governing
from memoryhub.core import rows
from memoryhub.core.quarantine import OUTSIDE

MAX_COMMITS = 5
"""So many of a thing's commits are shown, the latest."""

_TOUCHES = f"""
WITH governed(id, position, looked_at, path) AS MATERIALIZED (
  SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]') FROM json_each(%s)),
near(id, looked_at, commit_id) AS (
  SELECT g.id, g.looked_at, f.commit_id FROM governed g CROSS JOIN decisions_commitfile f
  WHERE f.path = g.path AND f.commit_id > g.position
  UNION
  SELECT g.id, g.looked_at, f.commit_id FROM governed g CROSS JOIN decisions_commitfile f
  WHERE f.path > g.path || '/' AND f.path < g.path || '0' AND f.commit_id > g.position),
touches(id, commit_id, at) AS (
  SELECT n.id, n.commit_id, c.committed_at FROM near n CROSS JOIN sessions_app_commit c
  WHERE c.id = n.commit_id AND c.committed_at >= n.looked_at AND c.id {OUTSIDE}
    AND NOT EXISTS (SELECT 1 FROM decisions_commitlink l WHERE l.decision_id = n.id AND l.commit_id = n.commit_id))
"""
_FIRST = f"{_TOUCHES} SELECT id, min(at), count(*), max(commit_id) FROM touches GROUP BY id"
_LATEST = f"""{_TOUCHES}, reverts(id, commit_id, at) AS (
  SELECT l.decision_id, l.commit_id, c.committed_at FROM decisions_commitlink l
  JOIN sessions_app_commit c ON c.id = l.commit_id JOIN decisions_decision d ON d.id = l.decision_id
  WHERE l.link_type = 'reverts' AND d.review <> '' AND l.decision_id IN (SELECT value FROM json_each(%s))),
numbered AS (
  SELECT id, commit_id, row_number() OVER (PARTITION BY id ORDER BY at DESC, commit_id DESC) AS number
  FROM (SELECT * FROM touches UNION SELECT * FROM reverts))
SELECT n.id, c.id, c.sha, c.message, c.author, c.committed_at, c.files
FROM numbered n JOIN sessions_app_commit c ON c.id = n.commit_id
WHERE n.number <= {MAX_COMMITS} ORDER BY n.id, n.number"""


@dataclass(frozen=True, slots=True)
class Touched:
    """That commits touched what a thing governs."""

    first_at: str
    """When the first of them was made, as the store keeps times."""
    commit_count: int
    latest: int
    """The id of the one that was recorded last."""


def touched(things: Iterable[Governing]) -> dict[int, Touched]:
    """Return which of these things commits have touched since someone looked at them, by id, in one query."""
    governed = _as_json(things)
    if governed == "[]":
        return {}
    return {row[0]: Touched(*row[1:]) for row in rows.fetch(_FIRST, [governed])}


def commits_touching(things: Iterable[Governing], ids: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
    """Return the latest commits that touched each thing, and those that took back what carried out a decision.

    Args:
        things: those that govern files.
        ids: all that are asked for.
    """
    paths = {thing.id: thing.paths for thing in things}
    found: dict[int, list[dict[str, Any]]] = {}
    for entity_id, *commit in rows.fetch(_LATEST, [_as_json(things), json.dumps(sorted(ids))]):
        found.setdefault(entity_id, []).append(_commit(commit, paths.get(entity_id, set())))
    return found


def _as_json(things: Iterable[Governing]) -> str:
    return json.dumps([(each.id, each.position, each.looked_at, path) for each in things for path in each.paths])


def _commit(row: list[Any], paths: set[str]) -> dict[str, Any]:
    commit_id, sha, message, author, committed_at, files = row
    changed = json.loads(files)
    return {
        "id": commit_id,
        "sha": sha,
        "subject": message.split("\n", 1)[0],
        "author": author,
        "date": rows.time_text(committed_at),
        "files": [each for each in changed if is_governed(each["path"], paths)] or changed,
        "diff": None,
    }


def is_governed(path: str, paths: set[str]) -> bool:
    """Whether a file is one of ``paths``, or in a folder that is."""
    parts = path.split("/")
    return any("/".join(parts[:length]) in paths for length in range(1, len(parts) + 1))
