"""Which commits touched governed files after someone had looked at what governs them last.

A store may hold many things that govern few files which are changed all the time. So what is read grows with the
commits and the files, never with how many things each commit touches: that is worked out here, when it is asked for.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from governance.staleness.governing import Governing
from memoryhub.core import rows
from memoryhub.core.dialect import IDS, elements, json_array_of
from memoryhub.core.quarantine import OUTSIDE

_COMMITS = (
    "SELECT id, committed_at || '' FROM sessions_app_commit "
    f"WHERE committed_at >= %s AND id {OUTSIDE} ORDER BY committed_at, id"
)
"""As text, as the store keeps it: to make a time of each costs more than all the rest."""
_ON_FILES = f"""
WITH governed(path) AS (SELECT value FROM {elements()} AS paths)
SELECT g.path,
  (SELECT {json_array_of("f.commit_id")} FROM decisions_commitfile f WHERE f.path = g.path AND f.commit_id > %s),
  (SELECT {json_array_of("f.commit_id")} FROM decisions_commitfile f
   WHERE f.path > g.path || '/' AND f.path < g.path || '0' AND f.commit_id > %s)
FROM governed g"""
"""The commits on each path, and on what is below it, as a list each: a row a commit takes twice as long."""
_EVIDENCE = "SELECT decision_id, commit_id FROM decisions_commitlink WHERE commit_id > %s"
_REVERTS = f"""
SELECT l.decision_id, l.commit_id FROM decisions_commitlink l JOIN decisions_decision d ON d.id = l.decision_id
WHERE l.link_type = 'reverts' AND d.review <> '' AND l.decision_id IN {IDS}
ORDER BY l.event DESC"""
_SHOWN = f"SELECT id, sha, message, author, committed_at, files FROM sessions_app_commit WHERE id IN {IDS}"


class Touches:
    """The commits that touched what some things govern, in three queries, however many these are."""

    def __init__(self, things: Collection[Governing]) -> None:
        commits = rows.fetch(_COMMITS, [min(thing.looked_at for thing in things)]) if things else []
        self._ids = [commit_id for commit_id, _ in commits]
        self._times = [at for _, at in commits]
        self._by_path: dict[str, list[int]] = {}
        """Which commits touched a path, each by its place among all in the order of their times."""
        self._evidence: dict[int, set[int]] = {}
        if commits:
            self._read(things)

    def _read(self, things: Collection[Governing]) -> None:
        places = {commit_id: place for place, commit_id in enumerate(self._ids)}
        first = min(thing.position for thing in things)
        paths = json.dumps(sorted(set().union(*(thing.paths for thing in things))))
        for path, on_it, below_it in rows.fetch(_ON_FILES, [paths, first, first]):
            commits = {*json.loads(on_it), *json.loads(below_it)}
            self._by_path[path] = sorted(places[each] for each in commits if each in places)
        for decision_id, commit_id in rows.fetch(_EVIDENCE, [first]):
            self._evidence.setdefault(decision_id, set()).add(commit_id)

    def first(self, thing: Governing) -> str | None:
        """Return when the first commit touched what the thing governs, as the store keeps times; None if none has."""
        start = bisect_left(self._times, thing.looked_at)
        found = [place for path in thing.paths if (place := self._next(thing, path, start)) is not None]
        return self._times[min(found)] if found else None

    def of(self, thing: Governing) -> list[int]:
        """Return the ids of the commits that touched what the thing governs, the latest first."""
        start = bisect_left(self._times, thing.looked_at)
        touching: set[int] = set()
        for path in thing.paths:
            on_path = self._by_path.get(path, [])
            touching.update(on_path[bisect_left(on_path, start) :])
        return [self._ids[place] for place in sorted(touching, reverse=True) if self._counts(thing, place)]

    def _next(self, thing: Governing, path: str, start: int) -> int | None:
        on_path = self._by_path.get(path, [])
        later = range(bisect_left(on_path, start), len(on_path))
        return next((on_path[each] for each in later if self._counts(thing, on_path[each])), None)

    def _counts(self, thing: Governing, place: int) -> bool:
        """Whether a commit was recorded after the thing, and is not its own evidence."""
        commit_id = self._ids[place]
        return commit_id > thing.position and commit_id not in self._evidence.get(thing.id, ())


def reverting(ids: Iterable[int]) -> dict[int, list[int]]:
    """Return the commits that took back what carried out those of the decisions that are to be looked at again."""
    found: dict[int, list[int]] = {}
    for decision_id, commit_id in rows.fetch(_REVERTS, [json.dumps(list(ids))]):
        found.setdefault(decision_id, []).append(commit_id)
    return found


def shown_commits(ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return commits as JSON data, by id; each with all its files."""
    return {row[0]: _shown(row) for row in rows.fetch(_SHOWN, [json.dumps(sorted(set(ids)))])}


def _shown(row: Sequence[Any]) -> dict[str, Any]:
    commit_id, sha, message, author, committed_at, files = row
    return {
        "id": commit_id,
        "sha": sha,
        "subject": message.split("\n", 1)[0],
        "author": author,
        "date": rows.time_text(committed_at),
        "files": json.loads(files),
        "diff": None,
    }


def on_governed(commit: dict[str, Any], paths: Collection[str], most: int) -> dict[str, Any]:
    """Return a commit with those of its files that are governed, at most ``most``; where none is, with any."""
    governed = [file for file in commit["files"] if is_governed(file["path"], paths)]
    return {**commit, "files": (governed or commit["files"])[:most]}


def is_governed(path: str, paths: Collection[str]) -> bool:
    """Whether a file is one of ``paths``, or in a folder that is."""
    parts: Sequence[str] = path.split("/")
    return any("/".join(parts[:length]) in paths for length in range(1, len(parts) + 1))
