"""Write sets as clients write: notes as memories, messages as turns of sessions at their dates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from benchmarks.quality.questions import Question, QuestionSet
from benchmarks.sets.chats import BETWEEN_MESSAGES
from benchmarks.sets.model import Collection, EvaluationSet, SetDocument
from memories.models import EndType, RelationType
from memories.schemas import MemoryWrite
from memories.schemas.links import RelationCreate
from memories.services import write_memories
from memories.services.links import create_relation
from memoryhub.core import clock, log
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import StoreId, project_store, use_store
from memoryhub.core.text import shortened
from sessions_app.events.client import MAX_TEXT
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn

_AT_ONCE = 500
_LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True)
class WrittenCollection:
    store: StoreId
    # Keys of documents to ids of memories, or to positions of messages; identical documents have one
    ids: Mapping[str, int]

    def questions(self, collection: Collection) -> list[Question]:
        """Return the queries that have right answers."""
        sessions = {document.key: document.session for document in collection.documents if document.session}
        return [
            Question(
                store=self.store,
                text=query.text,
                answers=frozenset(self.ids[key] for key in query.right),
                category=query.category,
                half=query.half,
                sessions=frozenset(sessions[key] for key in query.right if key in sessions),
                group=query.group,
            )
            for query in collection.queries
            if query.right
        ]


def write_set(read: EvaluationSet) -> QuestionSet:
    """Write each collection into a store of its own, and return the questions."""
    pairs = [(collection, write_collection(collection)) for collection in read.collections]
    questions = [question for collection, written in pairs for question in written.questions(collection)]
    return QuestionSet(read.key, read.label, sum(len(set(written.ids.values())) for _, written in pairs), questions)


def write_collection(collection: Collection) -> WrittenCollection:
    store = project_store(collection.name)
    ids: dict[str, int] = {}
    with use_store(store, create=True), use_origin(source="service", actor="evaluate"):
        if any(document.session for document in collection.documents):
            for session, messages in groupby(collection.documents, key=lambda document: document.session):
                with log.transaction():
                    ids |= _write_session(session, list(messages))
        else:
            ids = _write_notes(collection.documents)
    return WrittenCollection(store, ids)


def _write_session(session: str, messages: Sequence[SetDocument]) -> dict[str, int]:
    ids: dict[str, int] = {}
    began = messages[0].time or clock.now()
    with clock.frozen(began):
        start_session(command=SessionStart(session_id=session))
        turn = automatic_turn(session_id=session)
    for message in messages:
        with clock.frozen(message.time or began):
            payload = {"content": shortened(message.text, MAX_TEXT)}
            event = append_automatically(turn=turn, type=f"message.{message.role}", payload=payload)
        ids[message.key] = event.position
    with clock.frozen((messages[-1].time or began) + BETWEEN_MESSAGES):
        close_turn(turn)
    return ids


def _write_notes(documents: Sequence[SetDocument]) -> dict[str, int]:
    # Memories of the same title are one memory
    counts = Counter(document.title[:_LONGEST_TITLE].casefold() for document in documents)
    commands = [
        MemoryWrite(
            title=_title(document, is_unique=counts[document.title[:_LONGEST_TITLE].casefold()] == 1),
            content=document.text,
            kind=document.kind,
            type=document.type,
            attributes={"valid_until": document.ended} if document.ended else {},
        )
        for document in documents
    ]
    parts = [commands[start : start + _AT_ONCE] for start in range(0, len(commands), _AT_ONCE)]
    results = [result.id for part in parts for result in write_memories(commands=part)]
    ids = dict(zip((document.key for document in documents), results, strict=True))
    for document in documents:
        for older in document.supersedes:
            if older in ids:
                _supersede(ids[document.key], ids[older])
    return ids


def _title(document: SetDocument, *, is_unique: bool) -> str:
    if document.title and is_unique:
        return document.title[:_LONGEST_TITLE]
    return f"{document.key} {document.title}"[:_LONGEST_TITLE]


def _supersede(newer: int, older: int) -> None:
    create_relation(
        command=RelationCreate(
            source=newer,
            relation=RelationType.SUPERSEDES,
            target=older,
            source_type=EndType.MEMORY,
            target_type=EndType.MEMORY,
        )
    )
