"""Merge the events of another log into the current store, with ids of their own."""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from decisions.projectors import mentions
from governance.events import IMPORT_UNDONE, ImportUndone
from governance.imports import batch_of_trace, trace_of
from memories.duplicates import Existing
from memories.events import (
    MEMORY_RESTORED,
    MEMORY_REVISED,
    MEMORY_WRITTEN,
    RELATION_CREATED,
    MemoryRevised,
    MemoryState,
    MemoryWritten,
)
from memories.models import Memory, MemoryScope, MemoryVersion
from memories.selectors.versions import state_at
from memories.services.revise import append_version
from memoryhub.core import log
from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.projection import void_positions
from memoryhub.core.log.adopting import CopiedHeader, append_copy
from memoryhub.core.log.append import Draft, prepare
from memoryhub.core.log.digests import payload_digest
from memoryhub.core.log.erase import PAYLOAD_ERASED, PAYLOAD_REDACTED, mark_unwiped, remove_payloads
from memoryhub.core.schemas import LeftOut, Payload, Renumbering
from memoryhub.core.secrets.sanitize import Shape
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.transfer.bundles.archive import BundleContents
from memoryhub.transfer.bundles.lines import UNFIT, EventLine, refusal, require_earlier
from sessions_app.events import COMMIT_RECORDED, SESSION_STARTED, TURN_BEGAN, CommitRecorded

LEFT_OUT = -1
_HERE = "this store has its own version of their memory, decision, session, turn, commit or relation"
_KEPT = "this store's version, kept when another log was merged"
_ERASED_HERE = "their text was erased, or their import undone, in this store"

_PRESENT = f"SELECT position, payload_digest, salt, payload_json FROM raw_events WHERE position IN {IDS}"


@dataclass(slots=True)
class MergeReport:
    events: int = 0
    # New in this store
    added: int = 0
    # Merged before, or this store's own
    known: int = 0
    # Not merged, by reason
    left_out: dict[str, int] = field(default_factory=dict)
    # Strings in which a secret was masked, by its type
    redactions: dict[str, int] = field(default_factory=dict)
    # Events of this store with text that the other store has redacted since they were merged
    unredacted: list[int] = field(default_factory=list)
    # Memories that both have changed: this store's version stays, and a conflict is open
    conflicts: list[int] = field(default_factory=list)
    # Memories and decisions of which a change was left out, because this store has changed them too
    kept: list[int] = field(default_factory=list)
    # The event that records the merge; 0 if there was nothing to add
    position: int = 0


class Merge:
    """Appends the events of another log that the current store lacks; requires an open transaction of the log.

    An empty store gets the same positions, and so the same ids. In any other store the events get new positions, which
    replace the old ones in every payload; events that are there already, by their event id, are not added again.
    """

    def __init__(self, contents: BundleContents) -> None:
        self.report = MergeReport()
        # Whether events were taken back that this store's read models contain
        self.has_undone = False
        self._contents = contents
        # Positions of other events of this store, by those of the other log; memory is 8 bytes an event.
        self._positions = array("q", [0])
        self._context = Renumbering(self._position_of)
        self._start = self._head = log.head()[0]
        # An empty store keeps all positions.
        self._is_empty = self._start == 0
        # Streams of the other log whose further events are left out
        self._closed: set[str] = set()
        # Streams whose first event has no effect any more
        first = log.events().filter(stream_seq=1)
        gone = first.filter(payload_json=None) | first.at(void_positions())
        self._gone = set(gone.values_list("stream_id", flat=True))
        # For memories that both have changed: this store's version, and the numbers here of the other's versions
        self._existing: dict[int, Existing] = {}
        self._versions: dict[int, dict[int, int]] = {}

    def take_all(self, events: Iterable[EventLine]) -> None:
        for event in events:
            self.report.events += 1
            if event.position <= self._contents.fork:
                self.report.known += 1
                self._positions.append(LEFT_OUT if event.stream_id in self._gone else event.position)
                continue
            try:
                self._take(event)
            except LeftOut:
                self._leave(event, "they belong to events that were left out")
            except UNFIT as error:
                raise refusal(event.position, error) from error

    def open_conflicts(self) -> None:
        """Make this store's versions current again, each in conflict with the other's newest one."""
        present = set(Memory.objects.filter(id__in=self._existing).values_list("id", flat=True))
        for memory_id, existing in self._existing.items():
            if memory_id not in present:  # erased there later
                continue
            newest = max(self._versions[memory_id].values())
            theirs = Existing(memory_id, newest, existing.session_id, existing.state, existing.status)
            append_version(
                theirs,
                existing.state,
                base=existing.version,
                reason=_KEPT,
                key=None,
                unseen=newest,
                review=existing.status,
            )
            self.report.conflicts.append(memory_id)

    def _take(self, event: EventLine) -> None:
        # Known before its payload is read: some streams are named after their own first event.
        self._positions.append(self._head + 1)
        if not self._is_empty and self._is_settled(event):
            return
        draft = self._draft(event)
        if isinstance(draft, Draft) and not self._is_empty:
            existing = find_existing(draft.type, draft.payload)
            if existing:
                self._positions[-1] = existing
                self._closed.add(event.stream_id)
                if event.event_type == MEMORY_WRITTEN.name:
                    self._add_version(event, existing, draft.payload)
                    self._positions[-1] = existing
                else:
                    self._count(_HERE)
                return
        self._append(event, draft)

    def _leave(self, event: EventLine, reason: str) -> None:
        self._positions[event.position] = LEFT_OUT
        self._count(reason)

    def _is_settled(self, event: EventLine) -> bool:
        # Raw, since it is asked for each event of a merge
        events = rows.fetch("SELECT position, stream_id FROM raw_events WHERE event_id = %s", [event.event_id])
        if events:
            self.report.known += 1
            self._positions[-1] = self._existing_position(event, *events[0])
            return True
        reason = self._unwanted(event)
        if reason:
            self._leave(event, reason)
            return True
        if event.stream_id in self._closed or self._is_continued(event):
            self._closed.add(event.stream_id)
            self._meet_changed(event)
            return True
        return False

    # An entity is named after its first event, which can have become a version of another one here.
    def _existing_position(self, event: EventLine, position: int, stream: str) -> int:
        if stream in self._gone:
            return LEFT_OUT
        number = stream.rpartition(":")[2]
        if event.stream_id == f"memory:{event.position}" and number.isdigit():
            return int(number)
        return position

    def _unwanted(self, event: EventLine) -> str:
        # It refers to others that do not count, and may be in the way of others that do
        if event.position in self._contents.void:
            return "their import was undone"
        if event.known_type.is_local:
            return "they describe the other store as a whole, such as settings and context packs"
        return _ERASED_HERE if event.stream_id in self._gone else ""

    # A stream that this store has changed too
    def _meet_changed(self, event: EventLine) -> None:
        if event.event_type == MEMORY_REVISED.name and event.payload is not None:
            payload, _ = event.read_payload(self._context, is_same=False)
            assert isinstance(payload, MemoryRevised)  # noqa: S101
            self._add_version(event, payload.memory_id, payload)
            return
        thing, _, number = self._context.stream(event.stream_id).partition(":")
        if thing in ("memory", "decision"):
            self._keep(int(number))
        self._leave(event, _HERE)

    # Whether this store has changed the stream since the events that both have.
    def _is_continued(self, event: EventLine) -> bool:
        if event.event_type == MEMORY_REVISED.name and event.payload is not None:
            return self._is_revised(event, event.payload["version"])
        if event.stream_seq == 1 or not event.known_type.changes_stream:
            return False
        last = "SELECT max(stream_seq) FROM raw_events WHERE stream_id = %s"
        return (rows.fetch(last, [self._context.stream(event.stream_id)])[0][0] or 0) >= event.stream_seq

    # Two stores give different numbers only to versions that they made apart.
    def _is_revised(self, event: EventLine, version: Any) -> bool:
        memory_id = int(self._context.stream(event.stream_id).partition(":")[2])
        memory = Memory.objects.filter(id=memory_id).first()
        if memory is None:
            raise LeftOut(memory_id)
        if memory.deleted_at:
            self._keep(memory_id)
        return bool(memory.version != version - 1)

    def _draft(self, event: EventLine) -> Draft[Any] | EventType[Any]:
        self._session_id = event.session_id
        kind = event.known_type
        if event.payload is None:
            return kind
        payload, shape = event.read_payload(self._context, is_same=self._is_empty)
        if isinstance(payload, CommitRecorded) and payload.mentions is None and not self._is_empty:
            payload = payload.model_copy(update={"mentions": self._mentioned(payload.message)})
        draft = self._prepared(kind, payload, shape)
        if kind is MEMORY_RESTORED and not self._is_empty:
            self._require_free_topic(draft.payload.memory_id)
        if kind is PAYLOAD_REDACTED:
            self.report.unredacted += [position for position in draft.payload.digests if position <= self._start]
            return _redacting_here(draft)
        return draft

    def _require_free_topic(self, memory_id: int) -> None:
        memory = Memory.objects.get(id=memory_id)
        state = Existing.of(memory).state
        revised = MemoryRevised.of_stored({**state.columns(), "memory_id": memory.id, "version": 1, "base_version": 1})
        if self._is_topic_taken(revised):
            self._keep(memory.id)
            raise LeftOut(memory.id)

    def _prepared(self, kind: EventType[Any], payload: Payload, shape: Shape | None = None) -> Draft[Any]:
        if isinstance(payload, MemoryState) and self._is_topic_taken(payload):
            payload = payload.model_copy(update={"topic_key": None})
        draft = prepare(kind, payload, shape)
        for name in draft.redactions:
            self.report.redactions[name] = self.report.redactions.get(name, 0) + 1
        return draft

    # By another memory than the one that gets this state. Between written ones, a topic of the project is a conflict.
    def _is_topic_taken(self, state: MemoryState) -> bool:
        if state.topic_key is None or self._is_empty:
            return False
        memory_id = state.memory_id if isinstance(state, MemoryRevised) else 0
        memories = Memory.objects.live().filter(topic_key=state.topic_key).exclude(id=memory_id)
        if state.scope is not MemoryScope.SESSION:
            return bool(memory_id) and memories.exclude(scope=MemoryScope.SESSION).exists()
        memory = Memory.objects.filter(id=memory_id).first()
        session_id = memory.session_id if memory else self._session_id
        return memories.filter(scope=MemoryScope.SESSION, session_id=session_id).exists()

    # The message keeps its numbers; the decisions that they name here are in the payload.
    def _mentioned(self, message: str) -> dict[int, str]:
        last = len(self._positions) - 1
        named = [(self._position_of(old), link) for old, link in mentions(message).items() if old <= last]
        return {new: link.value for new, link in named if new}

    def _append(self, event: EventLine, draft: Draft[Any] | EventType[Any]) -> None:
        stream = self._context.stream(event.stream_id)
        if isinstance(draft, Draft) and draft.type is PAYLOAD_ERASED:
            # What an earlier merge brought is erased here too.
            draft = self._prepared(PAYLOAD_ERASED, erasing_here(draft.payload, by_job=event.source == "job"))
            remove_payloads(draft.payload.positions)
            mark_unwiped(self._head + 1)
        if isinstance(draft, Draft) and draft.type is IMPORT_UNDONE:
            draft = self._prepared(IMPORT_UNDONE, undoing_here(draft.payload))
            self.has_undone |= bool(draft.payload.void) and not self._is_empty
        header = self._header(event, stream, event.stream_seq if self._is_empty else 0)
        is_void = event.position in self._contents.void
        self._put(draft, header, erased_digest=event.erased_digest or "", is_void=is_void)

    # The trace of an imported event names its batch.
    def _header(self, event: EventLine, stream: str, seq: int = 0) -> CopiedHeader:
        header = event.header(stream, seq)
        batch = batch_of_trace(event.trace_id)
        if batch:
            return replace(header, trace_id=trace_of(self._context.require(batch)))
        return header

    def _put(self, draft: Draft[Any] | EventType[Any], header: CopiedHeader, **options: Any) -> None:
        append_copy(draft, header, **options)
        self._head += 1
        self.report.added += 1

    def _add_version(self, event: EventLine, memory_id: int, state: MemoryState) -> None:
        existing = self._existing.get(memory_id) or Existing.of(Memory.objects.get(id=memory_id))
        if self._has_version(memory_id, existing, state):
            self.report.known += 1
            return
        numbers = self._versions.setdefault(memory_id, {})
        number = max(numbers.values(), default=existing.version) + 1
        base = existing.version
        version = 1
        reason = ""
        if isinstance(state, MemoryRevised):
            base = numbers.get(state.base_version, min(state.base_version, existing.version))
            version = state.version
            reason = state.reason
        fields = state.columns() | {"attributes": state.attributes}
        revised = MemoryRevised(**fields, memory_id=memory_id, version=number, base_version=base, reason=reason)
        numbers[version] = number
        self._existing[memory_id] = existing
        header = replace(self._header(event, f"memory:{memory_id}"), version=MEMORY_REVISED.version)
        self._put(self._prepared(MEMORY_REVISED, revised), header)

    # Whether a version of this store alone has the same text, as after a merge in the other direction
    def _has_version(self, memory_id: int, existing: Existing, state: MemoryState) -> bool:
        later = MemoryVersion.objects.filter(memory_id=memory_id, id__gt=self._contents.fork).values_list("version")
        columns = _state_columns(state)
        return any(_state_columns(state_at(memory_id, version)) == columns for (version,) in later)

    def _position_of(self, position: int) -> int | None:
        renumbered = self._positions[require_earlier(position, len(self._positions) - 1)]
        return None if renumbered == LEFT_OUT else renumbered

    def _keep(self, entity: int) -> None:
        if entity not in self.report.kept:
            self.report.kept.append(entity)

    def _count(self, reason: str) -> None:
        self.report.left_out[reason] = self.report.left_out.get(reason, 0) + 1


def _state_columns(state: MemoryState) -> dict[str, Any]:
    return {**state.columns(), "attributes": state.attributes, "author": ""}


# The digests of redacted payloads depend on their salts, which are new.
def _redacting_here(draft: Draft[Any]) -> Draft[Any]:
    digests = {}
    listed = json.dumps(sorted(draft.payload.digests))
    for position, digest, salt, payload_json in rows.fetch(_PRESENT, [listed]):
        digests[position] = digest if payload_json is None else payload_digest(salt, payload_json)
    payload = draft.payload.model_copy(update={"digests": digests})
    data = {**draft.data, "digests": {str(position): digest for position, digest in digests.items()}}
    return Draft(PAYLOAD_REDACTED, payload, data, draft.redactions)


_OWN = (
    "SELECT position, stream_id FROM raw_events WHERE stream_id IN "
    f"(SELECT stream_id FROM raw_events WHERE stream_seq = 1 AND position IN {IDS}) "
    f"AND position NOT IN {IDS} AND payload_json IS NOT NULL"
)


def find_existing(kind: EventType[Any], payload: Payload) -> int:
    """Return the id of what an event would create, if the store has it by another event; 0 if not."""
    if kind.name not in _FIND or (isinstance(payload, MemoryWritten) and payload.scope is MemoryScope.SESSION):
        return 0
    sql, *fields = _FIND[kind.name]
    parameters = [getattr(payload, field) for field in fields]
    if None in parameters:
        return 0
    matches = rows.fetch(sql, parameters)
    return matches[0][0] if matches else 0


# What a store can have only once, by other things than its id: the query, and the fields of the payload for it
_FIND = {
    MEMORY_WRITTEN.name: (
        "SELECT id FROM memories_memory WHERE topic_key = %s AND deleted_at IS NULL AND scope <> 'session'",
        "topic_key",
    ),
    RELATION_CREATED.name: (
        "SELECT id FROM memories_relation WHERE source_id = %s AND target_id = %s AND relation = %s",
        *("source_id", "target_id", "relation"),
    ),
    SESSION_STARTED.name: ("SELECT id FROM sessions_app_session WHERE session_id = %s", "session_id"),
    TURN_BEGAN.name: (
        "SELECT id FROM sessions_app_turn WHERE session_id = %s AND turn_id = %s",
        "session_id",
        "turn_id",
    ),
    COMMIT_RECORDED.name: ("SELECT id FROM sessions_app_commit WHERE sha = %s", "sha"),
}


# A stream cannot be read without its first event. So an erasure of it takes this store's own events of the stream too;
# retention, and the undo of an import, leave such streams as they are.
def erasing_here(erased: log.PayloadErased, *, by_job: bool) -> log.PayloadErased:
    own_positions = _own_events(erased.positions)
    if not by_job:
        whole = {*erased.positions, *chain.from_iterable(own_positions.values())}
        return erased.model_copy(update={"positions": sorted(whole)})
    positions = _outside(erased.positions, own_positions)
    streams = [stream for stream in erased.streams if stream not in own_positions]
    return erased.model_copy(update={"positions": positions, "streams": streams})


def undoing_here(undone: ImportUndone) -> ImportUndone:
    positions = _own_events(undone.void)
    if not positions:
        return undone
    return undone.model_copy(update={"void": _outside(undone.void, positions)})


def _outside(positions: Sequence[int], streams: Collection[str]) -> list[int]:
    events = log.events().at(positions).values_list("position", "stream_id")
    outside = [position for position, stream in events if stream not in streams]
    if positions and not outside:
        raise LeftOut(positions[0])
    return outside


def _own_events(positions: Sequence[int]) -> dict[str, list[int]]:
    listed = json.dumps(positions)
    events: dict[str, list[int]] = {}
    for position, stream in rows.fetch(_OWN, [listed, listed]):
        events.setdefault(stream, []).append(position)
    return events
