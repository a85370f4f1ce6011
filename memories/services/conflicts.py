from __future__ import annotations

from memories import scopes
from memories.duplicates import Existing
from memories.events import CONFLICT_RESOLVED, MEMORY_WRITTEN, ConflictResolved, MemoryState, MemoryWritten
from memories.models import Conflict, MemoryScope, Resolution
from memories.review.policy import ReviewGate
from memories.schemas import ConflictResolve, ConflictResult
from memories.selectors.versions import find_conflict, state_at
from memories.services.revise import append_version, live_memory, refuse_taken_title
from memoryhub.core import log
from memoryhub.core.errors import Conflict as Refused
from memoryhub.core.errors import Invalid


def resolve_conflict(*, command: ConflictResolve) -> ConflictResult:
    """Resolve a conflict: keep one version, merge them, or make the earlier one a memory of its own.

    The chosen state becomes a new version unless it is current already. No version is deleted.

    Raises:
        NotFound: there is no such conflict.
        Conflict: it is resolved already, or a title is taken.
        Gone: the memory is deleted.
        Invalid: ``merge`` without the merged text, or a text without ``merge``.
    """
    _check(command)
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, CONFLICT_RESOLVED)
        if first:
            return _result(find_conflict(command.id))
        conflict = _open(command.id)
        existing = Existing.of(live_memory(conflict.memory_id))
        _apply(existing, conflict, command)
        split_id = _split(existing, conflict, command) if command.resolution is Resolution.BOTH else None
        payload = ConflictResolved(
            conflict_id=conflict.id,
            memory_id=existing.id,
            resolution=command.resolution,
            version=existing.version,
            split_id=split_id,
            reason=command.reason,
            **({"resolved_by": command.resolved_by} if command.resolved_by else {}),
        )
        draft = log.prepare(CONFLICT_RESOLVED, payload)
        log.append(draft, stream=f"memory:{existing.id}", idempotency_key=command.idempotency_key)
        return _result(find_conflict(command.id))


def _check(command: ConflictResolve) -> None:
    merges = command.resolution is Resolution.MERGE
    if merges and command.content is None:
        raise Invalid("resolution merge needs 'content', the merged text")
    if command.content is not None and not merges:
        raise Invalid(f"'content' is for resolution merge, not for {command.resolution}; leave it out")


def _open(conflict_id: int) -> Conflict:
    conflict = find_conflict(conflict_id)
    if conflict.resolved_at:
        raise Refused(
            f"conflict #{conflict_id} was resolved with {conflict.resolution} by {conflict.resolved_by}", id=conflict_id
        )
    return conflict


def _apply(existing: Existing, conflict: Conflict, command: ConflictResolve) -> None:
    state = _chosen_state(existing, conflict, command)
    if not existing.differs(state):
        return
    if state.title != existing.state.title:
        refuse_taken_title(existing, state)
    reason = command.reason or f"conflict #{conflict.id}: {command.resolution}"
    append_version(existing, state, base=existing.version, reason=reason, key=None)


def _chosen_state(existing: Existing, conflict: Conflict, command: ConflictResolve) -> MemoryState:
    if command.resolution is Resolution.KEEP_A:
        return state_at(existing.id, conflict.version_a)
    if command.resolution is Resolution.KEEP_B:
        return state_at(existing.id, conflict.version_b)
    if command.resolution is Resolution.MERGE:
        changes = {"content": command.content, **({"title": command.title} if command.title else {})}
        return MemoryState(**{**existing.state.columns(), **changes})
    return existing.state


def _split(existing: Existing, conflict: Conflict, command: ConflictResolve) -> int:
    earlier = state_at(existing.id, conflict.version_a)
    title = command.title or f"{earlier.title[:180]} (version {conflict.version_a} of #{existing.id})"
    fields = {**earlier.columns(), "title": title, "topic_key": None}
    if earlier.scope is MemoryScope.SESSION:
        fields["scope"] = MemoryScope.PROJECT
    payload = MemoryWritten(**fields)
    payload = payload.model_copy(update={"review": ReviewGate.current().of_new(payload)})
    refuse_taken_title(Existing(0, 0, existing.session_id, payload), payload)
    return log.append(log.prepare(MEMORY_WRITTEN, payload), entity="memory").position


def _result(conflict: Conflict) -> ConflictResult:
    return ConflictResult(
        id=conflict.id,
        memory_id=conflict.memory_id,
        version=conflict.resolved_version or 0,
        resolution=Resolution(conflict.resolution),
        split_id=conflict.split_id,
    )
