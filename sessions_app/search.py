"""What can be found of what happened: commits by message and paths, sessions by purpose and summary, messages."""

from __future__ import annotations

from memoryhub.core import clock
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.projection import Event
from memoryhub.core.searchable import Document, Removal, define_text, indexed_when
from sessions_app.events import (
    COMMIT_RECORDED,
    SESSION_ENDED,
    SESSION_STARTED,
    CommitRecorded,
    SessionEnded,
    SessionStarted,
)
from sessions_app.events.client import ASSISTANT_MESSAGE, NOTE_ADDED, USER_MESSAGE, Message, Note
from sessions_app.models import Session

_MAX_PATHS = 200

define_text("commit", "SELECT id, substr(message, 1, 200), message FROM sessions_app_commit")
define_text(
    "message",
    "SELECT position AS id, '' AS title, json_extract(payload_json, '$.content') AS body FROM raw_events "
    "WHERE event_type IN ('message.user', 'message.assistant', 'note.added')",
)
define_text("session", "SELECT id, purpose, summary FROM sessions_app_session")


@indexed_when(COMMIT_RECORDED)
def commit_document(event: Event[CommitRecorded]) -> Document:
    """Make a commit findable by its message, its author and the paths it touched."""
    payload = event.payload
    title, _, rest = payload.message.partition("\n")
    paths = " ".join(file.path for file in payload.files[:_MAX_PATHS])
    return Document(
        id=event.position,
        source="commit",
        title=title[:300],
        body=f"{rest}\n{payload.author}\n{payload.sha}\n{paths}",
        created_at=clock.from_text(payload.committed_at),
        session_id=event.session_id,
    )


@indexed_when(SESSION_STARTED, SESSION_ENDED)
def session_document(event: Event[SessionStarted] | Event[SessionEnded]) -> Document:
    """Make a session findable by its purpose and summary."""
    session = Session.objects.get(session_id=event.payload.session_id)
    return Document(
        id=session.id,
        source="session",
        title=(session.purpose or f"session {session.session_id}")[:300],
        body=session.summary,
        created_at=session.started_at,
        session_id=session.session_id,
    )


@indexed_when(USER_MESSAGE, ASSISTANT_MESSAGE, NOTE_ADDED)
def message_document(event: Event[Message] | Event[Note]) -> Document:
    """Make what was said in a turn findable."""
    content = event.payload.content
    return Document(
        id=event.position,
        source="message",
        type=event.type.rpartition(".")[2],
        title=content.strip().split("\n", 1)[0][:120],
        body=content,
        created_at=event.occurred_at,
        session_id=event.session_id,
    )


@indexed_when(PAYLOAD_ERASED)
def forget_erased(event: Event[PayloadErased]) -> Removal:
    """Take whatever the erased events created out of the index."""
    return Removal(tuple(event.payload.positions))
