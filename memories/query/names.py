"""Nearest wins by name: which guidelines, tools and knowledge a nearer scope hides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from memories.events import MEMORY_DELETED, MEMORY_RESTORED, MEMORY_REVISED
from memories.models import MemoryScope
from memories.query.scope_ranges import Place
from memories.query.sql import HOLDS, LIVE, NOT_LIVE, Sql
from memories.search.text_index import text_index
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, LIKE, TEXTS, elements, json_list, unindexed
from memoryhub.core.stores.store import use_store

# Later pages must see the names as of the first page: a nearer memory that is written, renamed or restored meanwhile
# hides nothing that the first page counted.

# The kinds whose titles are unique names
NAMED = tuple(kind.name for kind in KINDS.values() if kind.entry)

# Kind and title
Name = tuple[str, str]

_TOUCHING = (MEMORY_REVISED.name, MEMORY_DELETED.name, MEMORY_RESTORED.name)


def taken(places: Sequence[Place], names: Iterable[Name]) -> set[Name]:
    """Return those of ``names`` that a live memory in one of the nearer ``places`` has."""
    wanted = set(names)
    found: set[Name] = set()
    for place in places if wanted else ():
        with use_store(place.store):
            found |= _names_in(place, {title for _, title in wanted})
    return found & wanted


def _names_in(place: Place, titles: set[str]) -> set[Name]:
    touched = _touched_since(place.position)
    holds = place.holds
    found = rows.fetch(
        f"SELECT m.kind, m.title FROM memories_memory m WHERE m.title IN {TEXTS} AND {unindexed('m.kind')} IN {TEXTS} "
        f"AND {LIVE} AND {HOLDS} AND m.id NOT IN {IDS} AND {holds.text}",
        [json_list(sorted(titles)), json_list(NAMED), json_list(touched), *holds.parameters],
    )
    return {(kind, title) for kind, title in found} | (_earlier(place, touched) if touched else set())


# Memories revised, deleted or restored since a position, each with the type of its first deletion or restore
def _touched_since(position: int) -> dict[int, str]:
    found = rows.fetch(
        "SELECT stream_id, event_type FROM raw_events WHERE event_type IN (%s, %s, %s) AND position > %s "
        "ORDER BY position",
        [*_TOUCHING, position],
    )
    touched: dict[int, str] = {}
    for stream, event_type in found:
        memory_id = int(stream.partition(":")[2])
        first = touched.get(memory_id, "")
        touched[memory_id] = first or ("" if event_type == MEMORY_REVISED.name else event_type)
    return touched


# Names that these memories had at the position, if they were live then
def _earlier(place: Place, touched: dict[int, str]) -> set[Name]:
    found = rows.fetch(
        "SELECT m.id, m.kind, m.deleted_at IS NOT NULL, m.session_id, e.payload_json FROM memories_memory m "
        "JOIN raw_events e ON e.position = (SELECT max(v.id) FROM memories_memoryversion v "
        f"WHERE v.memory_id = m.id AND v.id <= %s) WHERE m.id IN {IDS}",
        [place.position, json_list(touched)],
    )
    names: set[Name] = set()
    for memory_id, kind, is_deleted, session_id, payload_json in found:
        payload = json.loads(payload_json or "{}")
        of_session = payload.get("scope") == MemoryScope.SESSION
        wanted = of_session and session_id == place.session_id if _is_session(place) else not of_session
        if wanted and kind in NAMED and not _was_deleted(touched[memory_id], is_deleted=bool(is_deleted)):
            names.add((kind, payload.get("title", "")))
    return names


def _is_session(place: Place) -> bool:
    return place.scope is MemoryScope.SESSION


def _was_deleted(first: str, *, is_deleted: bool) -> bool:
    # A first deletion implies that it was live before, a first restore that it was deleted
    return first == MEMORY_RESTORED.name if first else is_deleted


_BODY = f"(m.content {LIKE} {{0}} OR m.tags {LIKE} {{0}} OR m.attributes {LIKE} {{0}})"


def shares(words: Sequence[str], *, basic: bool, include_deleted: bool) -> Sql:
    """Return a query of ``id, share`` (0 to 1) for all memories that have any of the words.

    A word in the title counts as one, in the body as half.
    """
    if not words:
        return Sql("SELECT 0 AS id, 0.0 AS share WHERE false")
    if basic:
        return _like(words, "" if include_deleted else LIVE)
    found = Sql(*text_index.shares(words))
    if not include_deleted:
        return found
    # The full-text index contains live memories only
    deleted = _like(words, NOT_LIVE)
    return Sql(f"{found.text} UNION ALL {deleted.text}", (*found.parameters, *deleted.parameters))


# Matches parts of words too; tags are matched in their stored JSON
def _like(words: Sequence[str], condition: str) -> Sql:
    has = f"CASE WHEN m.title {LIKE} w.value THEN 2 WHEN {_BODY.format('w.value')} THEN 1 ELSE 0 END"
    text = (
        f"SELECT id, share FROM (SELECT m.id AS id, (SELECT sum({has}) FROM {elements()} AS w) * 0.5 / {len(words)} "
        f"AS share FROM memories_memory m WHERE {condition or 'true'}) AS s WHERE share > 0"
    )
    return Sql(text, (json_list(f"%{word}%" for word in words),))
