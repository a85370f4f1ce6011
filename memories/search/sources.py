from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from memories.events import (
    MEMORY_DELETED,
    MEMORY_RESTORED,
    MEMORY_REVIEWED,
    MEMORY_REVISED,
    MEMORY_WRITTEN,
    MemoryReviewed,
    MemoryRevised,
    MemoryTouched,
    MemoryWritten,
)
from memories.kinds import attribute_text
from memories.models import Memory, MemoryVersion, ReviewState
from memories.present import proposed_text
from memories.projectors import created_at
from memories.search.weights import PROPOSED, define_notes
from memories.substance import split_joined
from memoryhub.config.retention_rules import EndedWith
from memoryhub.core import log
from memoryhub.core.events.projection import Event
from memoryhub.core.kinds import KINDS
from memoryhub.core.search import Document, Removal, define_text, indexed_when
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, LINE_END, json_text
from sessions_app.events import SESSION_ENDED, SessionEnded


def _text_query() -> str:
    shapes = (shape for kind in KINDS.values() for shape in kind.shapes.values())
    searched = dict.fromkeys(json_text("attributes", shape.name) for shape in shapes if shape.attribute.searched)
    parts = ["content", *(f"coalesce({LINE_END} || {attribute}, '')" for attribute in searched)]
    return f"SELECT id, title, {' || '.join(parts)} AS body FROM memories_memory"


define_text("memory", _text_query)


def review_notes(ids: Sequence[int]) -> rows.Steps[dict[int, str]]:
    (proposed,) = yield [(f"SELECT id, accepted_version {PROPOSED} AND id IN {IDS}", [json.dumps(list(ids))])]
    return {memory: proposed_text(accepted_version) for memory, accepted_version in proposed}


define_notes("memory", review_notes)


@indexed_when(MEMORY_WRITTEN)
def written_document(event: Event[MemoryWritten]) -> Document:
    payload = event.payload
    return Document(
        id=event.position,
        source="memory",
        kind=payload.kind,
        type=payload.known_type,
        title=payload.title,
        body=_indexed_body(payload),
        near=split_joined(payload.content)[1],
        created_at=created_at(event),
        session_id=event.session_id,
    )


@indexed_when(MEMORY_REVISED, MEMORY_RESTORED, MEMORY_REVIEWED)
def present_document(event: Event[MemoryRevised | MemoryTouched | MemoryReviewed]) -> Document | Removal | None:
    # A proposed memory is also found by the words of its accepted version, which is what packs show (decision 24)
    memory = Memory.objects.get(id=event.payload.memory_id)
    if memory.deleted_at:
        return None
    if memory.review == ReviewState.REJECTED:
        return Removal((memory.id,))
    return Document(
        id=memory.id,
        source="memory",
        kind=memory.kind,
        type=memory.type,
        title=memory.title,
        body="\n".join(filter(None, (_indexed_body(memory), _accepted_text(memory)))),
        near=split_joined(memory.content)[1],
        created_at=memory.created_at,
        session_id=memory.session_id,
    )


@indexed_when(MEMORY_DELETED)
def deleted_document(event: Event[MemoryTouched]) -> Removal:
    return Removal((event.payload.memory_id,))


@indexed_when(SESSION_ENDED)
def discarded_documents(event: Event[SessionEnded]) -> Removal | None:
    if event.payload.entries is not EndedWith.DISCARD:
        return None
    gone = Memory.objects.filter(session_id=event.payload.session_id, deleted_at=event.occurred_at)
    return Removal(tuple(gone.values_list("id", flat=True)))


def _accepted_text(memory: Memory) -> str:
    if memory.review != ReviewState.PROPOSED or memory.accepted_version is None:
        return ""
    versions = MemoryVersion.objects.filter(memory_id=memory.id, version=memory.accepted_version)
    states = log.events().at(versions.values_list("id", flat=True)).payloads()
    if not states:
        return ""
    (state,) = states.values()
    text = _indexed_text(memory.kind, state["content"], state.get("tags", []), state.get("attributes", {}))
    return f"{state['title']}\n{text}"


def _indexed_body(memory: Memory | MemoryWritten) -> str:
    return _indexed_text(memory.kind, memory.content, memory.tags, memory.attributes)


def _indexed_text(kind: str, content: str, tags: Sequence[str], attributes: Mapping[str, Any]) -> str:
    text = split_joined(content)[0]
    return "\n".join(filter(None, (text, " ".join(tags), attribute_text(kind, attributes))))
