"""Merge the log of a bundle into a store whose log has gone on differently (decision 65)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.transaction import on_commit

from governance.events import LOG_MERGED, LogMerged
from memories.duplicates import Existing
from memories.events import MEMORY_RESTORED, MEMORY_REVISED, MEMORY_WRITTEN, MemoryRevised, MemoryState
from memories.models import Memory, MemoryScope, MemoryVersion
from memories.selectors.versions import state_at
from memories.services.revise import append_version
from memoryhub.core import log
from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.projection import void_positions
from memoryhub.core.log.append import Draft
from memoryhub.core.log.redact import redacted_digests
from memoryhub.core.schemas import LeftOut, Payload
from memoryhub.core.secrets.shapes import Shape
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.transfer.bundles.checking import Contents
from memoryhub.transfer.bundles.reading import Bundle
from memoryhub.transfer.jsonl import EventLine
from memoryhub.transfer.replaying import LEFT_OUT, Replay, ReplayReport

_KEPT = "this store's version, kept when another log was merged"
_ERASED_HERE = "their text was erased, or their import undone, in this store"
# Streams whose first event has no effect any more
_GONE = f"SELECT stream_id FROM raw_events WHERE stream_seq = 1 AND (payload_json IS NULL OR position IN {IDS})"
_PAYLOAD = "SELECT payload_json FROM raw_events WHERE position = %s AND payload_json IS NOT NULL"


@dataclass(slots=True)
class MergeReport(ReplayReport):
    # Memories that both have changed: this store's version stays, and a conflict is open
    conflicts: list[int] = field(default_factory=list)
    # Memories and decisions of which a change was left out, because this store has changed them too
    kept: list[int] = field(default_factory=list)
    # The event that records the merge; 0 if there was nothing to add
    position: int = 0


def find_merge(head: str) -> int:
    """Return the event with which the log that ends in ``head`` was merged into the current store, or 0."""
    found = rows.fetch("SELECT position, payload_json FROM raw_events WHERE event_type = %s", [LOG_MERGED.name])
    return next((position for position, payload in found if json.loads(payload or "{}").get("head") == head), 0)


def merge(
    bundle: Bundle, contents: Contents, redacted: Collection[int], progress: Callable[[int], None]
) -> MergeReport:
    """Append the events of a bundle that the current store lacks, as if they were written here, and record it.

    ``redacted``: positions of ``redactions_to_repeat``, which are redacted before.
    """
    with log.transaction():
        merging, removed = _Merge(contents), {*redacted, *redacted_digests()}
        merging.take_all(bundle.events(), progress)
        merging.open_conflicts()
        report = merging.report
        report.unredacted = [position for position in report.unredacted if position not in removed]
        if report.added:
            report.position = log.append(_record(bundle, contents, report), stream="merges").position
        if merging.has_undone:
            on_commit(log.rebuild, using=require_current_alias())
    return report


def _record(bundle: Bundle, contents: Contents, report: MergeReport) -> Draft[LogMerged]:
    manifest = bundle.manifest
    merged = LogMerged(
        store=f"{manifest.scope}:{manifest.store}",
        events=manifest.events,
        head=manifest.head,
        fork=contents.fork,
        fork_digest=contents.fork_digest,
        sha256=bundle.sha256,
        added=report.added,
        conflicts=report.conflicts,
    )
    return log.prepare(LOG_MERGED, merged)


def redactions_to_repeat(bundle: Bundle, contents: Contents) -> dict[int, Any]:
    """Return the redacted payloads of common events that only the other store has redacted, by position.

    What this store has redacted too stays as it is: the other store may still have what was removed here.
    """
    found: dict[int, Any] = {}
    wanted = {position for position in contents.redacted if position <= contents.fork} - set(redacted_digests())
    for event in bundle.events() if wanted and contents.last_removal > contents.fork else ():
        if event.position in wanted and event.payload_json is not None:
            present = rows.fetch(_PAYLOAD, [event.position])
            if present and present[0][0] != event.payload_json:
                found[event.position] = json.loads(event.payload_json)
    return found


class _Merge(Replay):
    report: MergeReport

    def __init__(self, contents: Contents) -> None:
        super().__init__(contents.void)
        self.report = MergeReport()
        self._contents = contents
        void = json.dumps(sorted(void_positions()))
        self._gone = {stream for (stream,) in rows.fetch(_GONE, [void])}
        # Of memories that both have changed: this store's version, and the numbers here of the other's versions
        self._own: dict[int, Existing] = {}
        self._versions: dict[int, dict[int, int]] = {}

    def open_conflicts(self) -> None:
        """Make this store's versions current again, each in conflict with the other's newest one."""
        present = set(Memory.objects.filter(id__in=self._own).values_list("id", flat=True))
        for memory_id, own in self._own.items():
            if memory_id not in present:  # erased there later
                continue
            newest = max(self._versions[memory_id].values())
            theirs = Existing(memory_id, newest, own.session_id, own.state, own.status)
            append_version(
                theirs, own.state, base=own.version, reason=_KEPT, key=None, unseen=newest, review=own.status
            )
            self.report.conflicts.append(memory_id)

    def _take(self, event: EventLine) -> None:
        if event.position > self._contents.fork:
            super()._take(event)
            return
        self.report.events += 1
        self.report.known += 1
        self._positions.append(LEFT_OUT if event.stream_id in self._gone else event.position)

    # An entity is named after its first event, which can have become a version of another one here.
    def _known(self, event: EventLine, position: int, stream: str) -> int:
        if stream in self._gone:
            return LEFT_OUT
        number = stream.rpartition(":")[2]
        return int(number) if event.stream_id == f"memory:{event.position}" and number.isdigit() else position

    def _unwanted(self, event: EventLine) -> str:
        return super()._unwanted(event) or (_ERASED_HERE if event.stream_id in self._gone else "")

    def _prepared(self, kind: EventType[Any], payload: Payload, shape: Shape | None = None) -> Draft[Any]:
        if isinstance(payload, MemoryState) and self._is_topic_taken(payload):
            payload = payload.model_copy(update={"topic_key": None})
        return super()._prepared(kind, payload, shape)

    # By another memory than the one that gets this state. Between written ones, a topic of the project is a conflict.
    def _is_topic_taken(self, state: MemoryState) -> bool:
        memory_id = state.memory_id if isinstance(state, MemoryRevised) else 0
        others = Memory.objects.live().filter(topic_key=state.topic_key).exclude(id=memory_id)
        if state.topic_key is None or self._is_empty:
            return False
        if state.scope is not MemoryScope.SESSION:
            return bool(memory_id) and others.exclude(scope=MemoryScope.SESSION).exists()
        memory = Memory.objects.filter(id=memory_id).first()
        session_id = memory.session_id if memory else self._session_id
        return others.filter(scope=MemoryScope.SESSION, session_id=session_id).exists()

    def _draft(self, event: EventLine) -> Draft[Any] | EventType[Any]:
        self._session_id = event.session_id
        draft = super()._draft(event)
        if isinstance(draft, Draft) and draft.type is MEMORY_RESTORED and not self._is_empty:
            memory = Memory.objects.get(id=draft.payload.memory_id)
            state = Existing.of(memory).state
            revised = MemoryRevised(**state.columns(), memory_id=memory.id, version=1, base_version=1)
            if self._is_topic_taken(revised):
                self._keep(memory.id)
                raise LeftOut(memory.id)
        return draft

    def _meet(self, event: EventLine, draft: Draft[Any], existing: int) -> None:
        if event.event_type == MEMORY_WRITTEN.name:
            self._add_version(event, existing, draft.payload)
            self._positions[event.position] = existing
        else:
            super()._meet(event, draft, existing)

    def _meet_changed(self, event: EventLine) -> None:
        if event.event_type == MEMORY_REVISED.name and event.payload is not None:
            payload, _ = event.read_payload(self._context, is_same=False)
            assert isinstance(payload, MemoryRevised)  # noqa: S101
            self._add_version(event, payload.memory_id, payload)
            return
        thing, _, number = self._context.stream(event.stream_id).partition(":")
        if thing in ("memory", "decision"):
            self._keep(int(number))
        super()._meet_changed(event)

    def _add_version(self, event: EventLine, memory_id: int, state: MemoryState) -> None:
        own = self._own.get(memory_id) or Existing.of(Memory.objects.get(id=memory_id))
        if self._has_version(memory_id, own, state):
            self.report.known += 1
            return
        numbers = self._versions.setdefault(memory_id, {})
        number, base = max(numbers.values(), default=own.version) + 1, own.version
        reason = ""
        if isinstance(state, MemoryRevised):
            base, reason = numbers.get(state.base_version, min(state.base_version, own.version)), state.reason
        fields = state.columns() | {"attributes": state.attributes}
        revised = MemoryRevised(**fields, memory_id=memory_id, version=number, base_version=base, reason=reason)
        numbers[state.version if isinstance(state, MemoryRevised) else 1] = number
        self._own[memory_id] = own
        header = replace(self._header(event, f"memory:{memory_id}"), version=MEMORY_REVISED.version)
        self._put(self._prepared(MEMORY_REVISED, revised), header)

    # Two stores give different numbers only to versions that they made apart.
    def _is_continued(self, event: EventLine) -> bool:
        if event.event_type != MEMORY_REVISED.name or event.payload is None:
            return super()._is_continued(event)
        memory_id = int(self._context.stream(event.stream_id).partition(":")[2])
        memory = Memory.objects.filter(id=memory_id).first()
        if memory is None:
            raise LeftOut(memory_id)
        if memory.deleted_at:
            self._keep(memory_id)
        return bool(memory.version != event.payload["version"] - 1)  # type: ignore[operator]

    def _keep(self, entity: int) -> None:
        if entity not in self.report.kept:
            self.report.kept.append(entity)

    # Whether a version of this store alone has the same text, as after a merge in the other direction
    def _has_version(self, memory_id: int, own: Existing, state: MemoryState) -> bool:
        later = MemoryVersion.objects.filter(memory_id=memory_id, id__gt=self._contents.fork).values_list("version")
        given = _columns(state)
        return any(_columns(state_at(memory_id, version)) == given for (version,) in later)


def _columns(state: MemoryState) -> dict[str, Any]:
    return {**state.columns(), "attributes": state.attributes, "author": ""}
