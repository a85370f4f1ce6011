"""The cursor: everything that later pages need to be ranked as the first one was."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memories import scopes
from memories.inheritance import Place, places_of, positions_of
from memories.models import MemoryScope
from memories.query.related import End, resolve
from memories.schemas.query import MemoryQuery, QueryScope
from memories.search.parsed_query import parse
from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import Ranking
from memoryhub.core import clock
from memoryhub.core.errors import Invalid
from memoryhub.core.log.event_view import viewed_store
from memoryhub.core.paging import decode_cursor, encode_cursor

# Later pages use the time, the weights and the log positions of the first page, so the cursor contains all of them.
_OF_THE_PAGE = {"cursor", "limit", "compact", "max_tokens", "include_versions"}
_WEIGHTS = tuple(Ranking.model_fields)

Key = float | str


def _usual_weights() -> list[float]:
    return _listed(Ranking())


def _listed(weights: Ranking) -> list[float]:
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
    w: list[float] = Field(default_factory=_usual_weights, min_length=len(_WEIGHTS), max_length=len(_WEIGHTS))
    r: list[str | int] = []


@dataclass(frozen=True, slots=True)
class Reached:
    key: Key
    # Of the scope
    rank: int
    id: int


@dataclass(frozen=True, slots=True)
class Question:
    command: MemoryQuery
    now: datetime
    positions: dict[str, int]
    places: list[Place]
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
            w=_listed(self.weights),
            r=[self.related.store, self.related.type, self.related.id] if self.related else [],
        )
        return encode_cursor(state.model_dump(exclude_defaults=True))


def open_question(command: MemoryQuery) -> Question:
    """Return a new question, or the one that the cursor continues.

    Raises:
        Invalid: the cursor is of another question, or the scope is not visible here.
        NotFound: there is no entity of the id or name in ``related_to``.
    """
    levels = _levels(command.scope)
    state = _state(command)
    words = parse(command.search).terms
    if state:
        return _continued(command, state, places_of(levels, state.p), words)
    positions = positions_of(levels)
    related = resolve(command.related_to) if command.related_to else None
    places = places_of(levels, positions)
    return Question(command, clock.now(), positions, places, project_settings().ranking, related, None, words)


def _levels(scope: QueryScope | None) -> list[scopes.Level]:
    if scope is None:
        return scopes.levels()
    here = scope.type is MemoryScope.PROJECT and scope.id == viewed_store().name
    return scopes.levels(scope.type, inherit=scope.inherit, scope_id="" if here else scope.id)


def _continued(command: MemoryQuery, state: _State, places: list[Place], words: tuple[str, ...]) -> Question:
    related = End(str(state.r[0]), str(state.r[1]), int(state.r[2])) if state.r else None
    weights = Ranking(**dict(zip(_WEIGHTS, state.w, strict=True)))
    after = Reached(state.k, state.s, state.i)
    now = datetime.fromtimestamp(state.t / 1000, UTC)
    return Question(command, now, state.p, places, weights, related, after, words)


def _state(command: MemoryQuery) -> _State | None:
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
