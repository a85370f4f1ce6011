"""Which files a memory or decision governs, and when it was last checked."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from decisions.models import ArtifactKind, DecisionStatus, LinkType
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, elements, greatest, json_length, json_text
from sessions_app.selectors import root_of_project

# Type of a memory's resource link to a governed file or folder
GOVERNS = "governs"
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
_DECLARED = [
    _FROM_MEMORIES.format(
        path="link.value",
        listed=elements("m.attributes", shape.name),
        governs=f"m.kind = '{kind.name}'",
        among="{among}",
    )
    for kind in KINDS.values()
    for shape in kind.shapes.values()
    if shape.attribute.governs
]
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
    # Of the event that wrote, revised or affirmed it last
    position: int
    # Time of that event in the store's format, cut to seconds: commit times have no fractions
    looked_at: str
    paths: set[str] = field(default_factory=set)


def governing(among: Collection[int] | None = None) -> dict[int, Governing]:
    found: dict[int, Governing] = {}
    root = root_of_project().rstrip("/")
    for entity_id, position, looked_at, uri in _rows(among):
        path = governed_path(uri, root)
        if path:
            thing = found.setdefault(entity_id, Governing(entity_id, position, looked_at))
            thing.paths.add(path)
    return found


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
    scheme, has_scheme, rest = uri.strip().partition("://")
    if has_scheme and scheme.lower() != "file":
        return ""
    path = "/" + unquote(rest).partition("/")[2] if has_scheme else uri.strip()
    if path.startswith("/"):
        path = path.removeprefix(f"{root}/") if root and path.startswith(f"{root}/") else ""
    path = path.removeprefix("./").rstrip("/")
    return "" if path in (".", "") or path.startswith("../") else path
