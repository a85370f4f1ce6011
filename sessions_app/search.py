"""Search documents of commits, sessions and messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain

from memoryhub.core import clock
from memoryhub.core.events.event_types import Speech, names_of_speech, quoted
from memoryhub.core.events.projection import Event, void_sql
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.search import Document, Removal, define_text, indexed_together, indexed_when
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, LINE_END, json_text
from memoryhub.core.text import first_line
from sessions_app import events
from sessions_app.events.client import COMMAND_RUN, CommandRun
from sessions_app.models import Commit, Session

_MAX_PATHS = 200

define_text("commit", "SELECT id, substr(message, 1, 200), message FROM sessions_app_commit")
define_text(
    "message",
    lambda: (
        f"SELECT position AS id, '' AS title, {json_text('payload_json', 'content')} AS body FROM raw_events "
        f"WHERE {_is_message()}"
    ),
)
# The commands that failed
define_text(
    "command",
    f"SELECT position AS id, '' AS title, {json_text('payload_json', 'command')} || {LINE_END} || "
    f"coalesce({json_text('payload_json', 'output')}, '') AS body FROM raw_events "
    f"WHERE event_type = '{COMMAND_RUN.name}' "
    f"AND coalesce(CAST({json_text('payload_json', 'exit_code')} AS text), '0') <> '0'",
)
define_text("session", "SELECT id, purpose, summary FROM sessions_app_session")


@indexed_when(events.COMMIT_RECORDED)
def commit_document(event: Event[events.CommitRecorded]) -> Document:
    payload = event.payload
    about = _about_iteration(event.position)
    return Document(
        id=event.position,
        source="commit",
        title=_first_line(payload.message),
        body=_commit_text(payload.message, payload.author, payload.sha, [file.path for file in payload.files], about),
        created_at=clock.from_text(payload.committed_at),
        session_id=event.session_id,
    )


@indexed_when(events.COMMIT_LINKED)
def moved_commit_document(event: Event[events.CommitLinked]) -> Document | None:
    if event.payload.iteration_id is None:
        return None
    return known_commit_document(Commit.objects.get(id=event.payload.commit_id), "")


def known_commit_document(commit: Commit, about: str) -> Document:
    """Return a commit's document with additional text; its session stays unchanged."""
    paths = [file["path"] for file in commit.files]
    more = f"{_about_iteration(commit.id)}\n{about}"
    return Document(
        id=commit.id,
        source="commit",
        title=_first_line(commit.message),
        body=_commit_text(commit.message, commit.author, commit.sha, paths, more),
        created_at=commit.committed_at,
    )


def _first_line(message: str) -> str:
    return message.partition("\n")[0][:300]


def _commit_text(message: str, author: str, sha: str, paths: list[str], about: str) -> str:
    message_body = message.partition("\n")[2]
    return "\n".join([message_body, author, sha, " ".join(paths[:_MAX_PATHS]), about])


def _about_iteration(commit_id: int) -> str:
    titles = rows.column(
        "SELECT i.command || ' ' || i.description FROM sessions_app_commit c "
        "JOIN sessions_app_iteration i ON i.id = c.iteration_id WHERE c.id = %s",
        [commit_id],
    )
    return "".join(titles)


@indexed_when(events.SESSION_STARTED, events.SESSION_ENDED)
def session_document(event: Event[events.SessionStarted] | Event[events.SessionEnded]) -> Document:
    session = Session.objects.get(session_id=event.payload.session_id)
    name = f"session {session.session_id}" if session.summary else ""
    return Document(
        id=session.id,
        source="session",
        title=(session.purpose or name)[:300],
        body=session.summary,
        created_at=session.started_at,
        session_id=session.session_id,
    )


# A message's neighbours are indexed again: its words are part of their context (decision 20).
@indexed_together(*Speech)
def message_documents(positions: Sequence[int]) -> list[Document]:
    return list(_messages(sorted({*positions, *_around(positions)})))


@indexed_when(COMMAND_RUN)
def command_document(event: Event[CommandRun]) -> Document | None:
    payload = event.payload
    if not payload.exit_code or not payload.output.strip():
        return None
    created_at = clock.from_text(payload.written_at) if payload.written_at else event.occurred_at
    return Document(
        id=event.position,
        source="command",
        type="failed",
        title=first_line(payload.command, 120),
        body=f"{payload.command}\n{payload.output}",
        created_at=created_at,
        session_id=event.session_id,
    )


@indexed_when(PAYLOAD_ERASED)
def forget_erased(event: Event[PayloadErased]) -> Removal:
    return Removal(tuple(event.payload.positions))


# Removes the words of erased messages from the documents of their neighbours.
@indexed_when(PAYLOAD_ERASED)
def messages_around_erased(event: Event[PayloadErased]) -> list[Document]:
    return list(_messages(_around(event.payload.positions)))


# Longer neighbours are not indexed: words of an answer would count as the user's, and its length against them.
_NEAR_CHARACTERS = 500


def _is_message() -> str:
    return f"event_type IN ({quoted(names_of_speech())})"


# Subquery: the nearest message before or after `e` in its session that counts and is not erased.
def _beside(column: str, sign: str, order: str) -> str:
    return (
        f"(SELECT {column} FROM raw_events n WHERE n.session_id = e.session_id AND n.session_id <> '' "
        f"AND n.position {sign} e.position AND n.{{is_message}} AND n.payload_json IS NOT NULL "
        "AND n.position NOT IN ({void}) "
        f"ORDER BY n.position {order} LIMIT 1)"
    )


_BEFORE, _AFTER = ("<", "DESC"), (">", "ASC")
_EXCERPT = (
    f"CASE WHEN length({json_text('n.payload_json', 'content')}) <= {_NEAR_CHARACTERS} "
    f"THEN {json_text('n.payload_json', 'content')} END"
)
_THESE = f"FROM raw_events e WHERE e.position IN {IDS} AND e.{{is_message}}"
_AROUND = f"SELECT {_beside('n.position', *_BEFORE)}, {_beside('n.position', *_AFTER)} {_THESE}"
# Another tool's messages are as old as they were there; a clock that is ahead makes none newer than its event
_SAID_AT = (
    f"CASE WHEN {json_text('e.payload_json', 'written_at')} < e.occurred_at "
    f"THEN {json_text('e.payload_json', 'written_at')} ELSE e.occurred_at END"
)
_MESSAGES = (
    f"SELECT e.position, e.event_type, e.session_id, {_SAID_AT}, {json_text('e.payload_json', 'content')}, "
    f"{_beside(_EXCERPT, *_BEFORE)}, {_beside(_EXCERPT, *_AFTER)} {_THESE} AND e.payload_json IS NOT NULL"
)


def _around(positions: Sequence[int]) -> list[int]:
    neighbours = rows.fetch(_AROUND.format(is_message=_is_message(), void=void_sql()), [json.dumps(list(positions))])
    return sorted({*chain.from_iterable(neighbours)} - {None})


def _messages(positions: Sequence[int]) -> Iterator[Document]:
    sql = _MESSAGES.format(is_message=_is_message(), void=void_sql())
    rows_of_messages = rows.fetch(sql, [json.dumps(list(positions))])
    for position, event_type, session_id, said_at, content, before, after in rows_of_messages:
        yield Document(
            id=position,
            source="message",
            type=event_type.rpartition(".")[2],
            title=first_line(content, 120),
            body=content,
            near="\n".join(filter(None, (before, after))),
            created_at=clock.from_text(said_at),
            session_id=session_id,
        )
