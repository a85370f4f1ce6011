"""Apply a bundle: create a store from it, continue one, or merge its memories into another."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Any

from django.db.transaction import on_commit

from governance.events import LOG_MERGED, LogMerged
from governance.redaction.copies import look_through
from memories.duplicates import Existing
from memories.events import MEMORY_RESTORED, MEMORY_REVISED, MEMORY_WRITTEN, MemoryRevised, MemoryState
from memories.models import Memory, MemoryScope, MemoryVersion
from memories.selectors.versions import state_at
from memories.services.revise import append_version
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import ConflictError, HubError, Invalid
from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.projection import finish_rebuild, void_positions
from memoryhub.core.log.adopting import append_as_is, forward
from memoryhub.core.log.append import Draft
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.erase import is_unwiped, redacted_digests, wipe_free_space
from memoryhub.core.permissions import Act, demand
from memoryhub.core.schemas import LeftOut, Payload
from memoryhub.core.secrets.sanitize import Shape
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import StoreId, require_stayed, use_store
from memoryhub.registry.access_history import noting_moves
from memoryhub.transfer.bundles.archive import Bundle, BundleContents, BundleEvent, check, read_payload
from memoryhub.transfer.jsonl import UNFIT, EventLine, refusal
from memoryhub.transfer.replaying import LEFT_OUT, Replay, ReplayReport


class BundleOutcome(StrEnum):
    # The store has no events: it gets the log as it is.
    ADOPTED = "adopted"
    # The store's log is the beginning of the bundle's.
    FORWARDED = "forwarded"
    # The bundle's log is the beginning of the store's, or was merged before.
    CONTAINED = "contained"
    # Both went on, or have nothing in common.
    MERGED = "merged"


@dataclass(slots=True)
class Applied:
    """What became of a bundle, or what would."""

    outcome: BundleOutcome
    store: StoreId
    contents: BundleContents
    # The store's head before
    head: tuple[int, str]
    # New in the store
    added: int = 0
    # Set by a merge
    merge: MergeReport | None = None
    # The event that recorded an earlier merge of the same log, 0 if there is none
    merged_before: int = 0
    # Places in the log that the secret rules of this hub would have masked; None if not looked for
    secrets: int | None = None


def preview_bundle(bundle: Bundle, store: StoreId) -> Applied:
    """Check every event of a bundle, and return what applying it to a store would do.

    Raises:
        Invalid: an event is not the one that was written, or this version can't read it.
        Moved: the store has moved to another place.
    """
    plan = _planned(bundle, store)
    if plan.outcome is BundleOutcome.MERGED and stores.exists(store):
        with use_store(store), suppress(_ApplyUndone), log.transaction():
            _merge(bundle, plan, redactions_to_repeat(bundle, plan.contents))
            raise _ApplyUndone
    return plan


class _ApplyUndone(Exception):
    """Rolls a preview back."""


def apply_bundle(bundle: Bundle, store: StoreId) -> Applied:
    """Apply a bundle to a store: all of it or nothing.

    Raises:
        Invalid: as ``preview_bundle``.
        ConflictError: the store has changed meanwhile.
        Damaged: the store's log lost events that the bundle does not have.
        Forbidden: the caller may not govern the store.
    """
    demand(Act.GOVERN, to="apply a bundle")
    plan = _planned(bundle, store)
    if plan.outcome is BundleOutcome.CONTAINED:
        return plan
    with use_store(store, create=True), noting_moves():
        if plan.outcome is BundleOutcome.MERGED:
            redacted = redactions_to_repeat(bundle, plan.contents)
            if redacted:  # first: if the process dies after it, the next attempt does the rest
                log.redact_payloads(redacted, what="redacted in another store", reason="a bundle was merged")
            _merge(bundle, plan, redacted)
        else:
            _continue(bundle, plan)
            plan.secrets = 0
            if _needs_look(bundle, plan):
                plan.secrets = look_through().finds
        if is_unwiped():
            wipe_free_space()
    return plan


def _planned(bundle: Bundle, store: StoreId) -> Applied:
    manifest = bundle.manifest
    if not stores.exists(store):
        require_stayed(store)
        plan = Applied(BundleOutcome.ADOPTED, store, check(bundle), (0, GENESIS))
    else:
        with use_store(store):
            digests = chain.from_iterable(log.iterate_columns("chain_digest"))
            plan = Applied(BundleOutcome.ADOPTED, store, check(bundle, digests), log.head())
            for position, payload in log.events().of_type(LOG_MERGED).payloads().items():
                if payload.get("head") == manifest.head:
                    plan.merged_before = position
                    break
    last = plan.head[0]
    fork = plan.contents.fork
    if fork == manifest.events or plan.merged_before:
        plan.outcome = BundleOutcome.CONTAINED
    elif fork < last or manifest.store_id != store:
        plan.outcome = BundleOutcome.MERGED
    else:
        plan.outcome = BundleOutcome.FORWARDED if last else BundleOutcome.ADOPTED
        plan.added = manifest.events - fork
    return plan


def _continue(bundle: Bundle, plan: Applied) -> None:
    contents = plan.contents
    if plan.head[0] and contents.last_removal > contents.fork:
        with _unfit_refused():
            forward(_without_erased(bundle, contents), fork=plan.head)
        return
    # The bundle may have what the log lost, so its anchor is compared at the end
    with _unfit_refused(), log.transaction(anchored=False):
        if log.head() != plan.head:
            raise ConflictError("the store has changed meanwhile; try again")
        for event in _without_erased(bundle, contents):
            if event.position > contents.fork:
                try:
                    append_as_is(event, void=contents.void)
                except UNFIT as error:
                    raise refusal(event.position, error) from error
        log.require_anchored()
    finish_rebuild()


# Events are written in batches, so an error may come after the event that caused it
@contextmanager
def _unfit_refused() -> Iterator[None]:
    try:
        yield
    except HubError:
        raise
    except UNFIT as error:
        why = f"the bundle's events do not fit each other ({type(error).__name__}); nothing was imported"
        raise Invalid(why) from error


# The new events were sanitised by the rules of another hub. A scan of the whole log takes 15 s for 100,000 events.
def _needs_look(bundle: Bundle, plan: Applied) -> bool:
    if plan.outcome is BundleOutcome.ADOPTED:
        return True
    new = (event for event in bundle.events() if event.position > plan.contents.fork)
    return any(log.prepare(event.known_type, read_payload(event)).redactions for event in new if event.payload_json)


# Text that was erased does not come back, even if a file still has it.
def _without_erased(bundle: Bundle, contents: BundleContents) -> Iterator[BundleEvent]:
    for event in bundle.events():
        if event.payload_json is not None and event.position in contents.erased:
            yield event.model_copy(update={"payload_json": None, "salt": None})
        else:
            yield event


_KEPT = "this store's version, kept when another log was merged"
_ERASED_HERE = "their text was erased, or their import undone, in this store"


@dataclass(slots=True)
class MergeReport(ReplayReport):
    # Memories that both have changed: this store's version stays, and a conflict is open
    conflicts: list[int] = field(default_factory=list)
    # Memories and decisions of which a change was left out, because this store has changed them too
    kept: list[int] = field(default_factory=list)
    # The event that records the merge; 0 if there was nothing to add
    position: int = 0


# Appends the events of a bundle that the current store lacks, as if they were written here, and records it. Those of
# ``redactions_to_repeat`` are redacted before.
def _merge(bundle: Bundle, plan: Applied, redacted: Collection[int]) -> None:
    with log.transaction():
        merging = _Merge(plan.contents)
        removed = {*redacted, *redacted_digests()}
        merging.take_all(bundle.events())
        merging.open_conflicts()
        report = merging.report
        report.unredacted = [position for position in report.unredacted if position not in removed]
        if report.added:
            manifest = bundle.manifest
            merged = LogMerged(
                store=f"{manifest.scope}:{manifest.store}",
                events=manifest.events,
                head=manifest.head,
                fork=plan.contents.fork,
                fork_digest=plan.contents.fork_digest,
                sha256=bundle.sha256,
                added=report.added,
                conflicts=report.conflicts,
            )
            report.position = log.append(log.prepare(LOG_MERGED, merged), stream="merges").position
        if merging.has_undone:
            on_commit(log.rebuild, using=require_current_alias())
    plan.merge = report
    plan.added = report.added
    if not plan.added:
        plan.outcome = BundleOutcome.CONTAINED


def redactions_to_repeat(bundle: Bundle, contents: BundleContents) -> dict[int, Any]:
    """Return the redacted payloads of common events that only the other store has redacted, by position.

    What this store has redacted too stays as it is: the other store may still have what was removed here.
    """
    payloads: dict[int, Any] = {}
    positions = {position for position in contents.redacted if position <= contents.fork} - set(redacted_digests())
    if not positions or contents.last_removal <= contents.fork:
        return payloads
    for event in bundle.events():
        if event.position in positions and event.payload_json is not None:
            present = log.events().at([event.position]).readable().first()
            if present and present.payload_json != event.payload_json:
                payloads[event.position] = json.loads(event.payload_json)
    return payloads


class _Merge(Replay):
    report: MergeReport

    def __init__(self, contents: BundleContents) -> None:
        super().__init__(contents.void)
        self.report = MergeReport()
        self._contents = contents
        # Streams whose first event has no effect any more
        first = log.events().filter(stream_seq=1)
        gone = first.filter(payload_json=None) | first.at(void_positions())
        self._gone = set(gone.values_list("stream_id", flat=True))
        # For memories that both have changed: this store's version, and the numbers here of the other's versions
        self._existing: dict[int, Existing] = {}
        self._versions: dict[int, dict[int, int]] = {}

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
        if event.position > self._contents.fork:
            super()._take(event)
            return
        self.report.events += 1
        self.report.known += 1
        self._positions.append(LEFT_OUT if event.stream_id in self._gone else event.position)

    # An entity is named after its first event, which can have become a version of another one here.
    def _existing_position(self, event: EventLine, position: int, stream: str) -> int:
        if stream in self._gone:
            return LEFT_OUT
        number = stream.rpartition(":")[2]
        if event.stream_id == f"memory:{event.position}" and number.isdigit():
            return int(number)
        return position

    def _unwanted(self, event: EventLine) -> str:
        if event.stream_id in self._gone:
            return super()._unwanted(event) or _ERASED_HERE
        return super()._unwanted(event)

    def _prepared(self, kind: EventType[Any], payload: Payload, shape: Shape | None = None) -> Draft[Any]:
        if isinstance(payload, MemoryState) and self._is_topic_taken(payload):
            payload = payload.model_copy(update={"topic_key": None})
        return super()._prepared(kind, payload, shape)

    # By another memory than the one that gets this state. Between written ones, a topic of the project is a conflict.
    def _is_topic_taken(self, state: MemoryState) -> bool:
        memory_id = state.memory_id if isinstance(state, MemoryRevised) else 0
        memories = Memory.objects.live().filter(topic_key=state.topic_key).exclude(id=memory_id)
        if state.topic_key is None or self._is_empty:
            return False
        if state.scope is not MemoryScope.SESSION:
            return bool(memory_id) and memories.exclude(scope=MemoryScope.SESSION).exists()
        memory = Memory.objects.filter(id=memory_id).first()
        session_id = memory.session_id if memory else self._session_id
        return memories.filter(scope=MemoryScope.SESSION, session_id=session_id).exists()

    def _draft(self, event: EventLine) -> Draft[Any] | EventType[Any]:
        self._session_id = event.session_id
        draft = super()._draft(event)
        if isinstance(draft, Draft) and draft.type is MEMORY_RESTORED and not self._is_empty:
            memory = Memory.objects.get(id=draft.payload.memory_id)
            state = Existing.of(memory).state
            revised = MemoryRevised.of_stored(
                {**state.columns(), "memory_id": memory.id, "version": 1, "base_version": 1}
            )
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
    def _has_version(self, memory_id: int, existing: Existing, state: MemoryState) -> bool:
        later = MemoryVersion.objects.filter(memory_id=memory_id, id__gt=self._contents.fork).values_list("version")
        columns = _state_columns(state)
        return any(_state_columns(state_at(memory_id, version)) == columns for (version,) in later)


def _state_columns(state: MemoryState) -> dict[str, Any]:
    return {**state.columns(), "attributes": state.attributes, "author": ""}
