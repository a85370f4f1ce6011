"""New versions of a memory: updates, restored versions, resolved conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from memories import scopes
from memories.duplicates import Existing, ExistingMemories
from memories.events import MEMORY_REVISED, MEMORY_WRITTEN, MemoryRevised, MemoryState, MemoryWritten, ReviewStatus
from memories.kinds import check_attributes, check_type
from memories.models import Memory, MemoryScope, MemoryVersion
from memories.pack.echo import refuse_echo
from memories.projectors.memories import ACCEPTED
from memories.review.policy import Policy
from memories.schemas import Embedding, MemoryRestore, MemoryUpdate, WriteResult, WriteStatus
from memories.selectors.versions import state_at
from memories.services.results import (
    kept,
    live_memory,
    refuse_taken_title,
    result_of,
    with_embedding,
    with_memory,
    with_review_status,
    written,
)
from memoryhub.config.current_settings import project_settings
from memoryhub.core import clock, log
from memoryhub.core.contributions import define_scratch
from memoryhub.core.errors import Invalid, PreconditionFailed

_CHANGEABLE = {"title", "content", "type", "tags", "author", "source", "resource_links"}


def update_memory(*, command: MemoryUpdate, window: timedelta | None = None) -> WriteResult:
    """Change parts of a memory; without an actual change no version is made.

    A change based on an older version is stored next to the current one as a conflict, if the first version that the
    writer missed is younger than the conflict window; otherwise it is refused (decision 15). ``window`` replaces the
    project's conflict window.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted.
        PreconditionFailed: ``base_version`` is not current, and the window has passed; the data has the current one.
        Conflict: another memory has the new title.
        Invalid: the kind has no such type or attribute, or there is nothing to promote.
    """
    seconds = 0 if command.must_be_current else project_settings().conflict_window_seconds
    window = timedelta(seconds=seconds) if window is None else window
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, MEMORY_REVISED)
        if first:
            return result_of(first)
        memory = live_memory(command.id)
        existing, unseen = Existing.of(memory), _unseen(memory, command.base_version, window)
        read = existing.state if unseen is None else state_at(memory.id, command.base_version or 1)
        state = _changed(read, command)
        if not existing.differs(_clean(state)):
            return with_memory(kept(existing, WriteStatus.UNCHANGED))
        if (state.title, state.scope) != (existing.state.title, existing.state.scope):
            refuse_taken_title(existing, state)
        base = command.base_version or existing.version
        result = append_version(
            existing, state, base=base, reason=command.change_reason, key=command.idempotency_key, unseen=unseen
        )
        return with_memory(result)


def restore_version(*, command: MemoryRestore) -> WriteResult:
    """Make an earlier version current again, as a new version.

    Raises:
        NotFound: there is no such memory or version.
        Gone: the memory is deleted.
        Conflict: another memory has the title of that version.
    """
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, MEMORY_REVISED)
        if first:
            return result_of(first)
        existing = Existing.of(live_memory(command.id))
        state = state_at(command.id, command.version or existing.version)
        if not existing.differs(state):
            return with_memory(kept(existing, WriteStatus.UNCHANGED))
        refuse_taken_title(existing, state)
        reason = command.reason or f"version {command.version} restored"
        result = append_version(existing, state, base=existing.version, reason=reason, key=command.idempotency_key)
        return with_memory(result)


def append_version(
    existing: Existing,
    state: MemoryState,
    *,
    base: int,
    reason: str,
    key: str | None,
    unseen: int | None = None,
    review: ReviewStatus | None = None,
    revised_at: str | None = None,
) -> WriteResult:
    """Append the next version of ``existing``; needs an open transaction of the log.

    Args:
        existing: the memory; advanced to the new version.
        state: the new state.
        base: the version it is based on.
        reason: of the change.
        key: idempotency key of the call.
        unseen: the version that the writer missed, which makes it a conflict.
        review: review status; default: as the project's policy decides.
        revised_at: when another tool made the change; default: now.
    """
    review = review or Policy.current().of_revision(existing, state)
    fields = state.columns() | {"attributes": state.attributes}
    payload = MemoryRevised(
        **fields,
        memory_id=existing.id,
        version=existing.version + 1,
        base_version=base,
        reason=reason,
        **({} if unseen is None else {"conflicts_with": unseen}),
        **({} if review in (None, ACCEPTED) else {"review": review}),
        **({"revised_at": revised_at} if revised_at else {}),
    )
    draft = log.prepare(MEMORY_REVISED, payload)
    event = log.append(draft, stream=f"memory:{existing.id}", idempotency_key=key)
    same_text = (existing.state.title, existing.state.content) == (draft.payload.title, draft.payload.content)
    existing.revised(draft.payload, draft.payload.review)
    status = WriteStatus.UPDATED if unseen is None else WriteStatus.CONFLICT
    result = with_review_status(written(existing.id, existing.version, status, draft.payload, draft), review)
    embedding = {"embedding": Embedding.KEPT} if same_text else {}
    opened = {} if unseen is None else {"conflict": event.position}
    return with_embedding([result.model_copy(update={**embedding, **opened})])[0]


# The version that a writer who read ``base`` has missed, or None. Refuses the change once the conflict window has
# passed (decision 15).
def _unseen(memory: Memory, base: int | None, window: timedelta) -> int | None:
    if base is None or base == memory.version:
        return None
    missed = MemoryVersion.objects.filter(memory_id=memory.id, version=base + 1).first()
    if missed and abs(clock.now() - missed.created_at) < window:
        return int(memory.version)
    raise PreconditionFailed(
        f"#{memory.id} is at version {memory.version}, but you read version {base}; read it again, then update",
        id=memory.id,
        version=memory.version,
    )


def _changed(before: MemoryState, command: MemoryUpdate) -> MemoryState:
    refuse_echo(command.content or "")
    changes: dict[str, Any] = command.model_dump(include=_CHANGEABLE, exclude_none=True)
    if command.type is not None:
        changes["type"] = check_type(before.kind, command.type)
    if command.attributes is not None:
        changes["attributes"] = check_attributes(before.kind, {**before.attributes, **command.attributes})
    if command.promote:
        changes["scope"] = _promoted(before)
    return MemoryState(**{**before.columns(), **changes})


def _promoted(before: MemoryState) -> MemoryScope:
    if before.scope is not MemoryScope.SESSION:
        raise Invalid(
            f"promote is for memories in scope session, but this one is in scope {before.scope}; to copy it elsewhere, "
            "use memory_write"
        )
    return MemoryScope.PROJECT


# A title or topic that the project has already gives way, so that no entry is lost.
def promote_entries(ids: Sequence[int]) -> None:
    """Move memories of a scratch session from the session to the project; needs an open transaction of the log."""
    found = Memory.objects.live().filter(id__in=ids, scope=MemoryScope.SESSION).order_by("id")
    moving = [Existing.of(memory) for memory in found]
    states = [MemoryState(**{**existing.state.columns(), "scope": MemoryScope.PROJECT}) for existing in moving]
    taken = ExistingMemories(states, session_id="") if states else None
    for existing, state in zip(moving, states, strict=True):
        is_taken = taken and (taken.of_topic(state) if state.topic_key else taken.of_title(state))
        name = {"title": f"{state.title[:180]} (#{existing.id})", "topic_key": None} if is_taken else {}
        reason = "promoted at the end of its scratch session"
        append_version(existing, state.model_copy(update=name), base=existing.version, reason=reason, key=None)


def scratch_entries(session_id: str) -> dict[int, str]:
    """Return the titles of the live memories of a scratch session that has not ended, by id."""
    found = Memory.objects.live().filter(session_id=session_id, ephemeral=True).order_by("id")
    return dict(found.values_list("id", "title"))


define_scratch(scratch_entries, promote_entries)


def _clean(state: MemoryState) -> MemoryState:
    return log.prepare(MEMORY_WRITTEN, MemoryWritten(**state.columns())).payload
