"""Read whatever ids stand for: memories, decisions, sessions, turns, commits and others, or else events of the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from decisions.present import decision_text
from decisions.schemas import DecisionGet
from decisions.selectors import get_decisions
from governance.events import IMPORT_BEGAN
from governance.imports import find_batch, gain_of
from memories.models import Conflict, Relation
from memories.present import memory_text, relation_line
from memories.schemas import MemoryGet
from memories.schemas.query import ConflictGet
from memories.selectors import get_memories
from memories.selectors.relations import view_relations
from memories.selectors.versions import conflict_text, get_conflict
from memoryhub.core import clock
from memoryhub.core.entities import find_entities, not_found
from memoryhub.core.errors import NotFound
from memoryhub.core.log import events, head
from memoryhub.core.log.read import described
from memoryhub.core.log.views import as_of
from memoryhub.core.text import flat, indented
from sessions_app.audit import event_line
from sessions_app.models import Commit, Iteration, Session, Turn
from sessions_app.present import commit_text, iteration_text, session_text, turn_line
from sessions_app.schemas import IterationGet, TurnList
from sessions_app.selectors import get_iteration, list_turns, view_commit, view_session, view_turn

_MOST_TURNS = 100


@dataclass(frozen=True, slots=True)
class EntityText:
    """What an id stands for, as data and as text."""

    # ``memory``, ``decision``, ``session``, ``commit``, ``iteration``, ``turn``, ``relation``, ``conflict``,
    # ``import`` or ``event``
    type: str
    text: str
    data: dict[str, Any]


def read_entities(*, command: MemoryGet) -> list[EntityText]:
    """Return what each id stands for, in the given order, or the nearest memory with a title or topic.

    Raises:
        NotFound: the log has no such id, or no memory that name.
        Gone: it was erased, or is a deleted memory, and ``include_deleted`` is off.
    """
    if not command.ids:
        return [EntityText("memory", memory_text(memory), memory) for memory in get_memories(command=command)]
    with nullcontext() if command.as_of is None else as_of(command.as_of):
        present = command.model_copy(update={"as_of": None})
        return [_read_entity(entity_id, present) for entity_id in command.ids]


def _read_entity(entity_id: int, command: MemoryGet) -> EntityText:
    entity = find_entities([entity_id]).get(entity_id)
    if entity and entity.type == "memory":
        (memory,) = get_memories(command=command.model_copy(update={"ids": [entity_id]}))
        return EntityText("memory", memory_text(memory), memory)
    if entity and entity.type == "decision":
        (decision,) = get_decisions(command=DecisionGet(ids=[entity_id], lineage=True))
        return EntityText("decision", decision_text(decision), decision)
    for read in _READERS:
        if text := read(entity_id):
            return text
    raise NotFound(f"there is no #{entity_id} here; the log ends at #{head()[0]}", id=entity_id)


def _session(entity_id: int) -> EntityText | None:
    session = Session.objects.filter(id=entity_id).first()
    if session is None:
        return None
    turns = list_turns(command=TurnList(session_id=session.session_id, limit=_MOST_TURNS)).results
    data = {**view_session(session), "turns": turns}
    return EntityText("session", session_text(data), data)


def _commit(entity_id: int) -> EntityText | None:
    commit = Commit.objects.filter(id=entity_id).first()
    if commit is None:
        return None
    data = view_commit(commit)
    return EntityText("commit", commit_text(data), data)


def _iteration(entity_id: int) -> EntityText | None:
    if not Iteration.objects.filter(id=entity_id).exists():
        return None
    data = get_iteration(command=IterationGet(id=entity_id))
    return EntityText("iteration", iteration_text(data), data)


def _turn(entity_id: int) -> EntityText | None:
    turn = Turn.objects.filter(id=entity_id).first()
    if turn is None:
        return None
    turn_events = events().of_turn(turn.session_id, turn.turn_id)
    data = {**view_turn(turn), "events": [described(event) for event in turn_events]}
    return EntityText("turn", "\n".join([turn_line(data), *map(event_line, data["events"])]), data)


def _event(entity_id: int) -> EntityText | None:
    event = events().at([entity_id]).first()
    if event is None:
        return None
    if event.payload_json is None:
        raise not_found(event.stream_id.partition(":")[0], [entity_id])
    data = described(event)
    payload = json.dumps(data["payload"], ensure_ascii=False, indent=1)
    return EntityText("event", f"{event_line(data)}\n{indented(payload)}", data)


def _relation(entity_id: int) -> EntityText | None:
    for data in view_relations(list(Relation.objects.filter(id=entity_id))):
        return EntityText("relation", relation_line(data), data)
    return None


# A conflict has the id of the version that began it
def _conflict(entity_id: int) -> EntityText | None:
    if not Conflict.objects.filter(id=entity_id).exists():
        return None
    data = get_conflict(command=ConflictGet(id=entity_id))
    return EntityText("conflict", conflict_text(data), data)


def _import(entity_id: int) -> EntityText | None:
    if not events().at([entity_id]).of_type(IMPORT_BEGAN).exists():
        return None
    batch = find_batch(entity_id)
    text = flat(f"#{batch.id} import from {batch.tool} {clock.minute(batch.began_at)} {batch.place}")
    return EntityText("import", text, {**asdict(batch), "state": batch.state, "gain": asdict(gain_of(batch))})


_READERS: tuple[Callable[[int], EntityText | None], ...] = (
    _session,
    _commit,
    _iteration,
    _turn,
    _relation,
    _conflict,
    _import,
    _event,
)
