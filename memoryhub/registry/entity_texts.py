"""Read whatever ids stand for: memories, decisions, sessions, commits, iterations, turns, or else events of the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext

from decisions.present import decision_text
from decisions.schemas import DecisionGet
from decisions.selectors import get_decisions
from memories.present import memory_text
from memories.schemas import MemoryGet
from memories.selectors import get_memories
from memoryhub.core.entities import find_entities, not_found
from memoryhub.core.errors import NotFound
from memoryhub.core.log import events, head
from memoryhub.core.log.read import described
from memoryhub.core.log.views import as_of
from memoryhub.core.text import indented
from memoryhub.core.tools import Answer
from sessions_app.audit import event_line
from sessions_app.models import Commit, Iteration, Session, Turn
from sessions_app.present import commit_text, iteration_text, session_text, turn_line
from sessions_app.schemas import IterationGet, TurnList
from sessions_app.selectors import get_iteration, list_turns, view_commit, view_session, view_turn

_MOST_TURNS = 100


def read_entities(*, command: MemoryGet) -> list[Answer]:
    """Return what each id stands for, in the given order, or the nearest memory with a title or topic.

    Raises:
        NotFound: the log has no such id, or no memory that name.
        Gone: it was erased, or is a deleted memory, and ``include_deleted`` is off.
    """
    if not command.ids:
        return [Answer(memory_text(memory), memory) for memory in get_memories(command=command)]
    with nullcontext() if command.as_of is None else as_of(command.as_of):
        present = command.model_copy(update={"as_of": None})
        return [_read_entity(entity_id, present) for entity_id in command.ids]


def _read_entity(entity_id: int, command: MemoryGet) -> Answer:
    entity = find_entities([entity_id]).get(entity_id)
    if entity and entity.type == "memory":
        (memory,) = get_memories(command=command.model_copy(update={"ids": [entity_id]}))
        return Answer(memory_text(memory), memory)
    if entity and entity.type == "decision":
        (decision,) = get_decisions(command=DecisionGet(ids=[entity_id], lineage=True))
        return Answer(decision_text(decision), decision)
    for read in _READERS:
        if text := read(entity_id):
            return text
    raise NotFound(f"there is no #{entity_id} here; the log ends at #{head()[0]}", id=entity_id)


def _session(entity_id: int) -> Answer | None:
    session = Session.objects.filter(id=entity_id).first()
    if session is None:
        return None
    turns = list_turns(command=TurnList(session_id=session.session_id, limit=_MOST_TURNS)).results
    data = {**view_session(session), "turns": turns}
    return Answer(session_text(data), data)


def _commit(entity_id: int) -> Answer | None:
    commit = Commit.objects.filter(id=entity_id).first()
    if commit is None:
        return None
    data = view_commit(commit)
    return Answer(commit_text(data), data)


def _iteration(entity_id: int) -> Answer | None:
    if not Iteration.objects.filter(id=entity_id).exists():
        return None
    data = get_iteration(command=IterationGet(id=entity_id))
    return Answer(iteration_text(data), data)


def _turn(entity_id: int) -> Answer | None:
    turn = Turn.objects.filter(id=entity_id).first()
    if turn is None:
        return None
    turn_events = events().of_turn(turn.session_id, turn.turn_id)
    data = {**view_turn(turn), "events": [described(event) for event in turn_events]}
    return Answer("\n".join([turn_line(data), *map(event_line, data["events"])]), data)


def _event(entity_id: int) -> Answer | None:
    event = events().at([entity_id]).first()
    if event is None:
        return None
    if event.payload_json is None:
        raise not_found(event.stream_id.partition(":")[0], [entity_id])
    data = described(event)
    payload = json.dumps(data["payload"], ensure_ascii=False, indent=1)
    return Answer(f"{event_line(data)}\n{indented(payload)}", data)


_READERS: tuple[Callable[[int], Answer | None], ...] = (_session, _commit, _iteration, _turn, _event)
