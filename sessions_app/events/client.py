"""What a client may append to its turn: what was said, done and decided on the way."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import Field, JsonValue

from memoryhub.core.projection import EventType, define_event, sets_aside
from memoryhub.core.schemas import Payload

P = TypeVar("P", bound=Payload)

MAX_TEXT = 100_000


class Message(Payload):
    """Something that the user or the assistant said."""

    content: str = Field(min_length=1, max_length=MAX_TEXT)


class ToolMessage(Payload):
    """A tool was called, or answered."""

    tool: str = Field(min_length=1, max_length=200)
    input: JsonValue = None
    output: JsonValue = None
    is_error: bool = False
    call_id: str = Field("", max_length=200)


class FileEdited(Payload):
    """A file was changed."""

    path: str = Field(min_length=1, max_length=4_000)
    change: str = Field("", max_length=MAX_TEXT)
    tool: str = Field("", max_length=200)


class CommandRun(Payload):
    """A command was run in a shell."""

    command: str = Field(min_length=1, max_length=MAX_TEXT)
    output: str = Field("", max_length=MAX_TEXT)
    exit_code: int | None = None
    directory: str = Field("", max_length=4_000)


class Note(Payload):
    """Something worth noting."""

    content: str = Field(min_length=1, max_length=MAX_TEXT)


class PhaseEvent(Payload):
    """Something happened to a phase of the work."""

    phase: str = Field(min_length=1, max_length=64)
    detail: str = Field("", max_length=MAX_TEXT)


class Approval(Payload):
    """The user approved or refused something."""

    subject: str = Field(min_length=1, max_length=2_000)
    detail: str = Field("", max_length=MAX_TEXT)


def _define(name: str, schema: type[P]) -> EventType[P]:
    return define_event(name, schema, alone=True, rollback=sets_aside("messages"), changes_stream=False)


USER_MESSAGE = _define("message.user", Message)
ASSISTANT_MESSAGE = _define("message.assistant", Message)
TOOL_MESSAGE = _define("message.tool", ToolMessage)
FILE_EDITED = _define("file.edited", FileEdited)
COMMAND_RUN = _define("command.run", CommandRun)
NOTE_ADDED = _define("note.added", Note)
CONTEXT_COMPACTED = _define("context.compacted", Note)

CLIENT_EVENTS: dict[str, EventType[Any]] = {
    each.name: each
    for each in (
        USER_MESSAGE,
        ASSISTANT_MESSAGE,
        TOOL_MESSAGE,
        FILE_EDITED,
        COMMAND_RUN,
        NOTE_ADDED,
        CONTEXT_COMPACTED,
        _define("phase.started", PhaseEvent),
        _define("phase.completed", PhaseEvent),
        _define("gate.passed", PhaseEvent),
        _define("gate.failed", PhaseEvent),
        _define("user.approved", Approval),
        _define("user.rejected", Approval),
    )
}
"""What ``event_append`` takes, by name; ``phase_completed`` is understood as ``phase.completed``."""


def client_event(name: str) -> EventType[Any] | None:
    """Return the type that a client means, written with a dot or with an underscore."""
    return CLIENT_EVENTS.get(name) or CLIENT_EVENTS.get(name.replace("_", ".", 1))
