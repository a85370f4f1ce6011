"""Files that memories and decisions govern, and commits that touched them after the last check."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from decisions.models import ArtifactKind, DecisionStatus, LinkType
from memories.events import GOVERNS
from memoryhub.config.repository import is_folder
from memoryhub.core.errors import Unavailable
from memoryhub.core.kinds import KINDS
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, elements, greatest, json_array_of, json_length, json_text
from sessions_app import git
from sessions_app.selectors import profile, root_of_project

# A larger commit does not show which of its files a decision is about, so it governs none
MAX_FILES = 50

# SQL: the memory is in force beyond its session
LIVE_MEMORY = (
    f"m.deleted_at IS NULL AND m.review = 'accepted' AND NOT m.ephemeral AND m.scope <> 'session' AND m.id {OUTSIDE}"
)
# SQL: the decision is in force
LIVE_DECISION = f"d.status = '{DecisionStatus.ACCEPTED}' AND d.id {OUTSIDE}"

_LOOKED_AT = greatest("m.updated_at", "coalesce(a.affirmed_at, m.updated_at)")
_RECORDED_AT = "replace(substr(e.occurred_at, 1, 19), 'T', ' ')"
_FROM_MEMORIES = f"""
SELECT m.id, {greatest("v.id", "coalesce(a.event, 0)")}, substr({_LOOKED_AT}, 1, 19), {{path}}
FROM memories_memory m
JOIN memories_memoryversion v ON v.memory_id = m.id AND v.version = m.version
LEFT JOIN governance_affirmation a ON a.entity_id = m.id
JOIN {{listed}} link ON true
WHERE {{governs}} AND {LIVE_MEMORY} {{among}}"""
_LINKED = _FROM_MEMORIES.format(
    path=json_text("link.value", "uri"),
    listed=elements("m.resource_links"),
    governs=f"NOT (m.resource_links = '[]') AND {json_text('link.value', 'type')} = '{GOVERNS}'",
    among="{among}",
)
# Kinds may declare that an attribute lists files that the memory governs.
_DECLARED: list[str] = []
for _kind in KINDS.values():
    for _shape in _kind.shapes.values():
        if _shape.attribute.lists_files:
            _listed = elements("m.attributes", _shape.name)
            _of_kind = f"m.kind = '{_kind.name}'"
            _DECLARED.append(
                _FROM_MEMORIES.format(path="link.value", listed=_listed, governs=_of_kind, among="{among}")
            )
_FROM_DECISIONS = f"""
SELECT d.id, {greatest("d.id", "coalesce(a.event, 0)")},
  {greatest(_RECORDED_AT, "coalesce(substr(a.affirmed_at, 1, 19), '')")}, {{path}}
FROM decisions_decision d
JOIN raw_events e ON e.position = d.id
LEFT JOIN governance_affirmation a ON a.entity_id = d.id
{{joined}}
WHERE {LIVE_DECISION} {{among}}"""
_NAMED = _FROM_DECISIONS.format(
    path="named.value",
    joined=f"JOIN decisions_artifactlink named ON named.decision_id = d.id AND named.kind = '{ArtifactKind.FILE_PATH}'",
    among="{among}",
)
_CARRIED_OUT = _FROM_DECISIONS.format(
    path=f"{json_text('file.value', 'path')}",
    joined=f"JOIN decisions_commitlink l ON l.decision_id = d.id AND l.link_type = '{LinkType.IMPLEMENTS}' "
    f"JOIN sessions_app_commit c ON c.id = l.commit_id AND {json_length('c.files')} <= {MAX_FILES} "
    f"JOIN {elements('c.files')} file ON true",
    among="{among}",
)


@dataclass(slots=True)
class Governing:
    id: int
    # Position of the event that wrote, revised or affirmed it last
    position: int
    # Time of that event in the store's format, cut to seconds: commit times have no fractions
    looked_at: str
    paths: set[str] = field(default_factory=set)


def governing(among: Collection[int] | None = None) -> dict[int, Governing]:
    things: dict[int, Governing] = {}
    root = root_of_project().rstrip("/")
    for entity_id, position, looked_at, uri in _rows(among):
        path = governed_path(uri, root)
        if path:
            thing = things.setdefault(entity_id, Governing(entity_id, position, looked_at))
            thing.paths.add(path)
    return things


def _rows(among: Collection[int] | None) -> Iterable[tuple[Any, ...]]:
    for sql in (_LINKED, *_DECLARED):
        yield from fetch_among(sql, "m.id", among)
    for sql in (_NAMED, _CARRIED_OUT):
        yield from fetch_among(sql, "d.id", among)


# ``{among}`` in the query restricts ``column`` to some ids, or to nothing
def fetch_among(
    sql: str, column: str, among: Collection[int] | None, parameters: Iterable[Any] = ()
) -> list[tuple[Any, ...]]:
    if among is None:
        return rows.fetch(sql.format(among=""), [*parameters])
    restricted = sql.format(among=f"AND {column} IN {IDS}")
    return rows.fetch(restricted, [*parameters, json.dumps(sorted(among))])


# The path relative to the repository, as commits have it; "" for other URIs and paths outside ``root``
@lru_cache(maxsize=4096)
def governed_path(uri: str, root: str = "") -> str:
    path = uri.strip()
    scheme, has_scheme, address = path.partition("://")
    if has_scheme:
        if scheme.lower() != "file":
            return ""
        path = "/" + unquote(address).partition("/")[2]
    if path.startswith("/"):
        if not root or not path.startswith(f"{root}/"):
            return ""
        path = path.removeprefix(f"{root}/")
    path = path.removeprefix("./").rstrip("/")
    if path == "." or path.startswith("../"):
        return ""
    return path


# Commits per answer whose diffs are read; the others show line counts
MAX_COMMITS = 40
# Per commit
MAX_LINES = 400
# Per commit
MAX_CHARS = 20_000

_PLACES = 3


def add_diffs(commits: Sequence[dict[str, Any]]) -> None:
    """Set ``diff`` in each commit to its changes of the listed files, with one run of git.

    Commits that no local repository has keep None.
    """
    paths_of: dict[str, set[str]] = {}
    for commit in commits[:MAX_COMMITS]:
        paths_of.setdefault(commit["sha"], set()).update(file["path"] for file in commit["files"])
    if not paths_of:
        return
    changes = _changes(list(paths_of), sorted(set().union(*paths_of.values())))
    for commit in commits:
        text = changes.get(commit["sha"])
        if text is not None:
            commit["diff"] = short_diff(_diff_of_files(text, [file["path"] for file in commit["files"]]))


def _changes(shas: Sequence[str], paths: Sequence[str]) -> dict[str, str]:
    for folder in repositories():
        try:
            diffs = git.read_changes(folder, shas, paths)
        except Unavailable:
            continue
        if diffs:
            return diffs
    return {}


# The project's own folder, and those where sessions worked last
def repositories() -> list[Path]:
    folders = dict.fromkeys(map(Path, [profile().root_path, *rows.column(_DIRECTORIES)]))
    return [folder for folder in folders if folder.is_absolute() and is_folder(folder)]


_DIRECTORIES = (
    "SELECT directory FROM sessions_app_session WHERE directory <> '' "
    f"GROUP BY directory ORDER BY max(id) DESC LIMIT {_PLACES}"
)


def _diff_of_files(text: str, paths: Iterable[str]) -> str:
    heads = {f"diff --git a/{path} b/{path}" for path in paths}
    lines: list[str] = []
    is_listed = False
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            is_listed = line in heads
        if is_listed:
            lines.append(line)
    return "\n".join(lines)


# Sanitised before truncation: a diff is not in the log, so nothing else has masked its secrets
def short_diff(diff: str) -> str:
    lines = sanitize_text(diff[: MAX_CHARS * 2])[0].rstrip().split("\n")
    text = "\n".join(lines[:MAX_LINES])[:MAX_CHARS]
    more = diff.rstrip().count("\n") - text.count("\n")
    return f"{text}\n… {more} more lines" if more > 0 else text


# Times as text: parsing them would take longer than the rest of the query
_COMMITS = (
    "SELECT id, committed_at || '' FROM sessions_app_commit "
    f"WHERE committed_at >= %s AND id {OUTSIDE} ORDER BY committed_at, id"
)
# Lists, because one row per path with its commits as JSON arrays takes half as long as one row per commit (decision 25)
_ON_FILES = f"""
WITH governed(path) AS (SELECT value FROM {elements()} AS paths)
SELECT g.path,
  (SELECT {json_array_of("f.commit_id")} FROM decisions_commitfile f WHERE f.path = g.path AND f.commit_id > %s),
  (SELECT {json_array_of("f.commit_id")} FROM decisions_commitfile f
   WHERE f.path > g.path || '/' AND f.path < g.path || '0' AND f.commit_id > %s)
FROM governed g"""
_EVIDENCE = "SELECT decision_id, commit_id FROM decisions_commitlink WHERE commit_id > %s"
_COMMITS_BY_ID = f"SELECT id, sha, message, author, committed_at, files FROM sessions_app_commit WHERE id IN {IDS}"


# Not a join: items times commits can be over a million pairs. Each path has its commits in order of time, and
# bisection finds the first that counts (decision 25).
class Touches:
    def __init__(self, things: Collection[Governing]) -> None:
        commits = []
        if things:
            commits = rows.fetch(_COMMITS, [min(thing.looked_at for thing in things)])
        self._ids = [commit_id for commit_id, _ in commits]
        self._times = [at for _, at in commits]
        # Places of commits in the order of time, by path
        self._by_path: dict[str, list[int]] = {}
        self._evidence: dict[int, set[int]] = {}
        if commits:
            self._read(things)

    def _read(self, things: Collection[Governing]) -> None:
        places = {commit_id: place for place, commit_id in enumerate(self._ids)}
        first = min(thing.position for thing in things)
        paths = json.dumps(sorted(set().union(*(thing.paths for thing in things))))
        for path, on_it, below_it in rows.fetch(_ON_FILES, [paths, first, first]):
            commits = {*json.loads(on_it), *json.loads(below_it)}
            self._by_path[path] = sorted(places[commit_id] for commit_id in commits if commit_id in places)
        for decision_id, commit_id in rows.fetch(_EVIDENCE, [first]):
            self._evidence.setdefault(decision_id, set()).add(commit_id)

    # A time in the store's format
    def first(self, thing: Governing) -> str | None:
        start = bisect_left(self._times, thing.looked_at)
        places = [self._next(thing, path, start) for path in thing.paths]
        earliest = min((place for place in places if place is not None), default=None)
        return None if earliest is None else self._times[earliest]

    def of(self, thing: Governing) -> list[int]:
        start = bisect_left(self._times, thing.looked_at)
        touching: set[int] = set()
        for path in thing.paths:
            on_path = self._by_path.get(path, [])
            touching.update(on_path[bisect_left(on_path, start) :])
        return [self._ids[place] for place in sorted(touching, reverse=True) if self._counts(thing, place)]

    def _next(self, thing: Governing, path: str, start: int) -> int | None:
        on_path = self._by_path.get(path, [])
        later = range(bisect_left(on_path, start), len(on_path))
        return next((on_path[index] for index in later if self._counts(thing, on_path[index])), None)

    # A commit counts if it was recorded after the item was checked and is not its own evidence (decision 25)
    def _counts(self, thing: Governing, place: int) -> bool:
        commit_id = self._ids[place]
        return commit_id > thing.position and commit_id not in self._evidence.get(thing.id, ())


def commits_by_id(ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    commits = {}
    for row in rows.fetch(_COMMITS_BY_ID, [json.dumps(sorted(set(ids)))]):
        commit_id, sha, message, author, committed_at, files = row
        commits[commit_id] = {
            "id": commit_id,
            "sha": sha,
            "subject": message.split("\n", 1)[0],
            "author": author,
            "date": rows.time_text(committed_at),
            "files": json.loads(files),
            "diff": None,
        }
    return commits


def on_governed(commit: dict[str, Any], paths: set[str], most: int) -> dict[str, Any]:
    governed = []
    for file in commit["files"]:
        folders = accumulate(file["path"].split("/"), "{}/{}".format)
        if not paths.isdisjoint(folders):
            governed.append(file)
    return {**commit, "files": (governed or commit["files"])[:most]}
