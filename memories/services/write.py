"""Write memories, and resolve duplicates by topic, text or title (decision 8)."""

from __future__ import annotations

from collections.abc import Sequence

from memories import scopes
from memories.duplicates import Existing, ExistingMemories, current_topic, similar_memories
from memories.events import ACCEPTED, MEMORY_REVISED, MEMORY_SEEN, MEMORY_WRITTEN, MemoryTouched, MemoryWritten, filled
from memories.kinds import check_attributes, check_type
from memories.models import MemoryScope
from memories.pack.sections import refuse_echo
from memories.review.policy import ReviewGate
from memories.schemas import IfExists, MemoryWrite, WriteResult, WriteStatus
from memories.services.revise import append_version, result_of, with_memory, write_result
from memories.validity.copies import copied_from
from memories.validity.provenance import Workplace, current_workplace, provenance_of_memory
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, Invalid
from memoryhub.core.kinds import word_for
from memoryhub.core.log import Draft
from memoryhub.core.origin import current_origin

_BATCH = 500
# Entries of a call whose code git looks for, some 20 ms each
_SEARCHED = 20
_NOT_STATE = {"if_exists", "named", "related_chunks", "check", "anchors", "idempotency_key"}
_NOT_REVISED = {"review", "copied_from", "written_at", "revised_at", "provenance"}


def write_memory(*, command: MemoryWrite) -> WriteResult:
    """Write one memory.

    An existing ``topic_key`` is revised, identical content is counted, and ``if_exists`` decides on a taken title.
    Topics are unique per scope, texts and titles per scope and kind.

    Raises:
        ConflictError: the title is taken and ``if_exists`` is ``error``, or the topic is of another kind; the data
            has the id.
        Invalid: the kind has no such type or attribute, or the scope cannot be written from here.
    """
    return write_memories(commands=[command])[0]


def write_memories(*, commands: Sequence[MemoryWrite]) -> list[WriteResult]:
    """Write many memories of one scope, 500 per transaction; an error keeps the transactions before it.

    Raises:
        ConflictError, Invalid: as ``write_memory``.
    """
    results: list[WriteResult] = []
    if len({command.scope for command in commands}) > 1:
        raise Invalid("all memories of a batch must have the same scope; write each scope in a call of its own")
    for start in range(0, len(commands), _BATCH):
        batch = commands[start : start + _BATCH]
        # The session's events are in the caller's store
        copies = [copied_from(command.title, command.content) for command in batch]
        with scopes.writing(batch[0].scope) as scope:
            policy = ReviewGate()
            workplace = current_workplace(scope, searches=len(batch) <= _SEARCHED)
            drafts: list[Draft[MemoryWritten]] = []
            for command, copied in zip(batch, copies, strict=True):
                payload = _payload(command, scope, policy, workplace)
                payload = payload.model_copy(update=filled(copied_from=copied))
                drafts.append(log.prepare(MEMORY_WRITTEN, payload))
            with log.transaction():
                existing = ExistingMemories([draft.payload for draft in drafts], current_origin().session_id)
                for command, draft in zip(batch, drafts, strict=True):
                    results.append(_write(command, draft, existing, policy.settings))
            if len(batch) == 1:
                result = with_memory(results.pop())
                if result.status is WriteStatus.CREATED:
                    similar = similar_memories(result.id, drafts[0].payload)
                    result = result.model_copy(update={"similar": similar})
                results.append(result)
    return results


def _payload(
    command: MemoryWrite, scope: MemoryScope, policy: ReviewGate, workplace: Workplace | None
) -> MemoryWritten:
    refuse_echo(command.content)
    fields = command.model_dump(exclude=_NOT_STATE, exclude_unset=True)
    if command.type:
        check_type(command.kind, command.type)
    if command.attributes:
        fields["attributes"] = check_attributes(command.kind, command.attributes)
    if command.topic_key:
        fields["topic_key"] = current_topic(command.topic_key)
    if scope is not MemoryScope.PROJECT:
        fields["scope"] = scope
    fields["author"] = command.author or current_origin().actor
    written = MemoryWritten(**fields)
    provenance = provenance_of_memory(written, workplace, command.anchors)
    return written.model_copy(update=filled(review=policy.of_new(written), provenance=provenance))


def _write(
    command: MemoryWrite, draft: Draft[MemoryWritten], existing: ExistingMemories, settings: ProjectSettings
) -> WriteResult:
    first = log.find_by_key(command.idempotency_key, MEMORY_WRITTEN, MEMORY_REVISED, MEMORY_SEEN)
    if first:
        return result_of(first, draft.redactions)
    payload, key = draft.payload, command.idempotency_key
    topic = existing.of_topic(payload)
    if topic:
        return _write_to_topic(topic, draft, key)
    if not payload.topic_key:
        same = None if command.named else existing.of_content(payload)
        if same:
            seen = log.prepare(MEMORY_SEEN, MemoryTouched(memory_id=same.id))
            log.append(seen, stream=f"memory:{same.id}", idempotency_key=key)
            return write_result(same, WriteStatus.SEEN)
        titled = existing.of_title(payload)
        if titled:
            return _write_to_title(titled, command, draft)
    event = log.append(draft, entity="memory", idempotency_key=key)
    session_id = current_origin().session_id
    created = Existing(event.position, 1, session_id, payload, payload.review or ACCEPTED)
    existing.add(created)
    return write_result(created, WriteStatus.CREATED, redacted=draft.redactions, settings=settings)


def _write_to_topic(existing: Existing, draft: Draft[MemoryWritten], key: str | None) -> WriteResult:
    payload = draft.payload
    if payload.kind is not existing.state.kind:
        raise ConflictError(
            f"topic {payload.topic_key!r} belongs to the {word_for(existing.state.kind)} #{existing.id}; write it with "
            f"kind={existing.state.kind}, or choose another topic_key",
            id=existing.id,
        )
    if existing.differs(payload):
        return _revise(existing, draft, key)
    return write_result(existing, WriteStatus.UNCHANGED)


def _write_to_title(existing: Existing, command: MemoryWrite, draft: Draft[MemoryWritten]) -> WriteResult:
    if command.if_exists is IfExists.KEEP:
        return write_result(existing, WriteStatus.KEPT)
    if command.if_exists is IfExists.UPDATE:
        return _revise(existing, draft, command.idempotency_key)
    state = existing.state
    raise ConflictError(
        f"{word_for(state.kind)} {state.title!r} of scope {state.scope} exists as #{existing.id}; update it, choose "
        "another title, or pass if_exists=update or keep",
        id=existing.id,
        version=existing.version,
    )


def _revise(existing: Existing, draft: Draft[MemoryWritten], key: str | None) -> WriteResult:
    state = existing.state.with_changes(**draft.payload.model_dump(exclude=_NOT_REVISED, exclude_unset=True))
    result = append_version(
        existing,
        state,
        base=existing.version,
        reason="",
        key=key,
        revised_at=draft.payload.revised_at,
        provenance=draft.payload.provenance,
        copied=draft.payload.copied_from,
    )
    return result.model_copy(update={"redacted": list(draft.redactions)})
