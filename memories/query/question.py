"""A cross-reference query as later pages repeat it: its cursor, its places and what it is related to."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memories import scopes
from memories.models import PROJECT, EndType, MemoryScope, MemoryVersion
from memories.schemas.query import MemoryQuery, RelatedTo, RelatedType
from memories.scopes import LIVE, ScopePlace, Sql, places_of, positions_of, store_key
from memories.search.parsed_query import parse
from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import Ranking
from memoryhub.core import clock, log
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.views import viewed_store
from memoryhub.core.paging import decode_cursor, encode_cursor
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, use_store

# Later pages use the time, the weights and the log positions of the first page, so the cursor contains all of them.
_OF_THE_PAGE = {"cursor", "limit", "compact", "max_tokens", "include_versions"}
_WEIGHTS = tuple(Ranking.model_fields)

Key = float | str


def _weights_in_order(weights: Ranking) -> list[float]:
    return [getattr(weights, name) for name in _WEIGHTS]


# Single letters, because it travels with every page
class _State(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    q: str
    t: int
    p: dict[str, int]
    k: float | str
    s: int
    i: int
    w: list[float] = Field(
        default_factory=lambda: _weights_in_order(Ranking()), min_length=len(_WEIGHTS), max_length=len(_WEIGHTS)
    )
    r: list[str | int] = []


@dataclass(frozen=True, slots=True)
class Reached:
    key: Key
    # Rank of its scope
    rank: int
    id: int


@dataclass(frozen=True, slots=True)
class Question:
    command: MemoryQuery
    now: datetime
    positions: dict[str, int]
    places: list[ScopePlace]
    weights: Ranking
    related: End | None
    after: Reached | None
    # Search terms; empty if the question has none
    words: tuple[str, ...]

    def cursor_at(self, key: Key, rank: int, memory_id: int) -> str:
        state = _State(
            q=fingerprint(self.command),
            t=round(self.now.timestamp() * 1000),
            p=self.positions,
            k=key,
            s=rank,
            i=memory_id,
            w=_weights_in_order(self.weights),
            r=[self.related.store, self.related.type, self.related.id] if self.related else [],
        )
        return encode_cursor(state.model_dump(exclude_defaults=True))


def open_question(command: MemoryQuery) -> Question:
    """Return a new question, or the one that the cursor continues.

    Raises:
        Invalid: the cursor is of another question, or the scope is not visible here.
        NotFound: there is no entity of the id or name in ``related_to``.
    """
    scope = command.scope
    if scope is None:
        levels = scopes.levels()
    else:
        here = scope.type is MemoryScope.PROJECT and scope.id == viewed_store().name
        levels = scopes.levels(scope.type, inherit=scope.inherit, scope_id="" if here else scope.id)
    state = _state_of_cursor(command)
    words = parse(command.search).terms
    if state:
        end = End(str(state.r[0]), str(state.r[1]), int(state.r[2])) if state.r else None
        weights = Ranking(**dict(zip(_WEIGHTS, state.w, strict=True)))
        after = Reached(state.k, state.s, state.i)
        now = datetime.fromtimestamp(state.t / 1000, UTC)
        return Question(command, now, state.p, places_of(levels, state.p), weights, end, after, words)
    positions = positions_of(levels)
    related = resolve(command.related_to) if command.related_to else None
    places = places_of(levels, positions)
    return Question(command, clock.now(), positions, places, project_settings().ranking, related, None, words)


def _state_of_cursor(command: MemoryQuery) -> _State | None:
    parts = decode_cursor(command.cursor, (dict,))
    if parts is None:
        return None
    try:
        state = _State.model_validate(parts[0])
    except ValidationError as error:
        raise Invalid("cursor is not one that this list gave; leave it out to start from the first page") from error
    if state.q != fingerprint(command):
        raise Invalid("cursor belongs to another question; send that question again, or leave the cursor out")
    return state


def fingerprint(command: MemoryQuery) -> str:
    """Return a digest of the question without its paging options."""
    fields: dict[str, Any] = {name: value for name, value in command if name not in _OF_THE_PAGE}
    return hashlib.sha256(f"{viewed_store().name} {fields!r}".encode()).hexdigest()[:8]


_OTHER_ENDS = {
    RelatedType.DECISION: EndType.DECISION,
    RelatedType.COMMIT: EndType.COMMIT,
    RelatedType.SESSION: EndType.SESSION,
}
_REFERENCE = re.compile(rf"(?:({'|'.join(MemoryScope.values)}))?#?(\d{{1,15}})")


@dataclass(frozen=True, slots=True)
class End:
    # ``store_key`` of the store
    store: str
    # An ``EndType``
    type: str
    id: int


def resolve(related_to: RelatedTo) -> End:
    """Return the entity that the caller named.

    Raises:
        NotFound: there is no such entity here.
        Invalid: it is another project, or not an id.
    """
    here = store_key(current_store())
    if related_to.type is RelatedType.PROJECT:
        return End(here, EndType.PROJECT, _project_of(related_to.id))
    if related_to.type in _OTHER_ENDS:
        return End(here, _OTHER_ENDS[related_to.type], _id_of(related_to))
    levels = scopes.levels()
    places = places_of(levels, positions_of(levels))
    by_title = Sql(f"m.title = %s AND {LIVE}", (related_to.id,))
    end = _memory_of_id(related_to, places) or _first_memory(places, related_to, by_title)
    if end is None:
        what = related_to.type
        raise NotFound(f"there is no {what} {related_to.id[:200]!r} here; memory_search finds its id or title")
    return end


def _project_of(name: str) -> int:
    project = viewed_store().name
    if name not in (project, str(PROJECT)):
        raise Invalid(f"related_to.id: this server is bound to project {project!r}; name that one, not {name[:80]!r}")
    return PROJECT


def _id_of(related_to: RelatedTo) -> int:
    reference = _REFERENCE.fullmatch(related_to.id)
    if not reference:
        raise Invalid(f"related_to.id of type {related_to.type} is its id, a number such as 412")
    entity_id = int(reference[2])
    entity = find_entities([entity_id]).get(entity_id)
    if entity is None or entity.type != related_to.type:
        raise NotFound(f"there is no {related_to.type} #{entity_id} here; memory_search finds its id", id=entity_id)
    return entity_id


def _memory_of_id(related_to: RelatedTo, places: list[ScopePlace]) -> End | None:
    reference = _REFERENCE.fullmatch(related_to.id)
    if not reference:
        return None
    if reference[1]:
        places = [place for place in places if place.scope == reference[1]]
    else:
        places = [place for place in places if place.store == current_store()]
    return _first_memory(places, related_to, Sql("m.id = %s", (int(reference[2]),)))


def _first_memory(places: list[ScopePlace], related_to: RelatedTo, condition: Sql) -> End | None:
    kind = "" if related_to.type is RelatedType.MEMORY else related_to.type.value
    for place in places:
        holds = place.holds
        with use_store(place.store):
            matches = rows.fetch(
                f"SELECT m.id FROM memories_memory m WHERE {condition.text} AND (%s = '' OR m.kind = %s) "
                f"AND {holds.text} ORDER BY m.updated_at DESC, m.id DESC LIMIT 1",
                [*condition.parameters, kind, kind, *holds.parameters],
            )
        if matches:
            return End(store_key(place.store), EndType.MEMORY, matches[0][0])
    return None


def tags_at(end: End, position: int) -> list[str]:
    """Return the tags that a memory of the current store had at a position; other entities have none."""
    if end.type != EndType.MEMORY:
        return []
    version = MemoryVersion.objects.filter(memory_id=end.id, id__lte=position).order_by("-id").first()
    if version is None:
        return []
    payload = log.events().at([version.id]).payloads().get(version.id, {})
    return sorted(set(payload.get("tags", [])))


def related_ids(end: End, relation: str | None) -> Sql:
    """Return a query of the ids of all memories directly related to ``end``, in either direction."""
    parameters: tuple[int | str, ...] = (end.id, end.type, EndType.MEMORY.value)
    kind = ""
    if relation:
        kind = " AND relation = %s"
        parameters += (relation,)
    text = (
        f"SELECT target_id FROM memories_relation WHERE source_id = %s AND source_type = %s AND target_type = %s{kind} "
        f"UNION SELECT source_id FROM memories_relation WHERE target_id = %s AND target_type = %s "
        f"AND source_type = %s{kind}"
    )
    return Sql(text, (*parameters, *parameters))
