"""What the current store has of its own, where events of another log are imported into it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any

from governance.events import ImportUndone
from memories.events import MEMORY_WRITTEN, RELATION_CREATED, MemoryWritten, RelationCreated
from memories.models import MemoryScope
from memoryhub.core import log
from memoryhub.core.events.event_types import EventType
from memoryhub.core.schemas import LeftOut, Payload
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from sessions_app.events import COMMIT_RECORDED, SESSION_STARTED, CommitRecorded, SessionStarted
from sessions_app.events.sessions import TURN_BEGAN, TurnBegan

_OWN = (
    "SELECT position, stream_id FROM raw_events WHERE stream_id IN "
    f"(SELECT stream_id FROM raw_events WHERE stream_seq = 1 AND position IN {IDS}) "
    f"AND position NOT IN {IDS} AND payload_json IS NOT NULL"
)


def find_existing(kind: EventType[Any], payload: Payload) -> int:
    """Return the id of what an event would create, if the store has it by another event; 0 if not."""
    find = _FIND.get(kind.name)
    if find is None:
        return 0
    sql, values = find
    parameters = values(payload)
    found = rows.fetch(sql, parameters) if all(value is not None for value in parameters) else []
    return found[0][0] if found else 0


def _topic(payload: MemoryWritten) -> list[Any]:
    return [None if payload.scope is MemoryScope.SESSION else payload.topic_key]


def _relation(payload: RelationCreated) -> list[Any]:
    return [payload.source_id, payload.target_id, payload.relation]


def _session(payload: SessionStarted) -> list[Any]:
    return [payload.session_id]


def _turn(payload: TurnBegan) -> list[Any]:
    return [payload.session_id, payload.turn_id]


def _commit(payload: CommitRecorded) -> list[Any]:
    return [payload.sha]


# Of what a store can have only once, by other things than its id
_FIND: dict[str, tuple[str, Callable[[Any], list[Any]]]] = {
    MEMORY_WRITTEN.name: (
        "SELECT id FROM memories_memory WHERE topic_key = %s AND deleted_at IS NULL AND scope <> 'session'",
        _topic,
    ),
    RELATION_CREATED.name: (
        "SELECT id FROM memories_relation WHERE source_id = %s AND target_id = %s AND relation = %s",
        _relation,
    ),
    SESSION_STARTED.name: ("SELECT id FROM sessions_app_session WHERE session_id = %s", _session),
    TURN_BEGAN.name: ("SELECT id FROM sessions_app_turn WHERE session_id = %s AND turn_id = %s", _turn),
    COMMIT_RECORDED.name: ("SELECT id FROM sessions_app_commit WHERE sha = %s", _commit),
}


# A stream cannot be read without its first event. So an erasure of it takes this store's own events of the stream too;
# retention, and the undo of an import, leave such streams as they are.
def erasing_here(erased: log.PayloadErased, *, by_job: bool) -> log.PayloadErased:
    own = _own_events(erased.positions)
    if not by_job:
        whole = {*erased.positions, *chain.from_iterable(own.values())}
        return erased.model_copy(update={"positions": sorted(whole)})
    positions = _outside(erased.positions, own)
    streams = [stream for stream in erased.streams if stream not in own]
    return erased.model_copy(update={"positions": positions, "streams": streams})


def undoing_here(undone: ImportUndone) -> ImportUndone:
    own = _own_events(undone.void)
    return undone.model_copy(update={"void": _outside(undone.void, own)}) if own else undone


def _outside(positions: Sequence[int], streams: Collection[str]) -> list[int]:
    found = rows.fetch(f"SELECT position, stream_id FROM raw_events WHERE position IN {IDS}", [json.dumps(positions)])
    left = [position for position, stream in found if stream not in streams]
    if positions and not left:
        raise LeftOut(positions[0])
    return left


def _own_events(positions: Sequence[int]) -> dict[str, list[int]]:
    listed = json.dumps(positions)
    own: dict[str, list[int]] = {}
    for position, stream in rows.fetch(_OWN, [listed, listed]):
        own.setdefault(stream, []).append(position)
    return own
