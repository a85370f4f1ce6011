"""Events that clients append to their turns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import ConfigDict, Field, JsonValue, ValidationInfo, model_validator

from memoryhub.core.events.event_types import (
    EventGroup,
    EventType,
    Retention,
    Speech,
    TurnRule,
    define_event,
    event_types,
)
from memoryhub.core.events.rollback import sets_aside
from memoryhub.core.schemas import STORED, Instant, Payload
from sessions_app.events import WORK, joined

MAX_TEXT = 100_000


def _check_size(data: Mapping[str, Any], info: ValidationInfo) -> None:
    # Events of earlier versions were checked when they were appended.
    if info.context != STORED and len(json.dumps(data, ensure_ascii=False)) > MAX_TEXT:
        raise ValueError(f"fields that the type does not name may have {MAX_TEXT} characters as JSON in all")


class ClientPayload(Payload):
    """Base of the payloads of clients' events: fields that the type does not name are stored too."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    @model_validator(mode="after")
    def _bounded(self, info: ValidationInfo) -> ClientPayload:
        _check_size(self.__pydantic_extra__, info)
        return self


class Message(ClientPayload):
    content: str = Field(min_length=1, max_length=MAX_TEXT)
    # When it was written, if it was imported later
    written_at: Instant | None = None


class ToolMessage(ClientPayload):
    tool: str = Field(min_length=1, max_length=200)
    input: JsonValue = None
    output: JsonValue = None
    is_error: bool = False
    call_id: str = Field("", max_length=200)
    agent_id: str = Field("", max_length=200)


class FileEdited(ClientPayload):
    path: str = Field(min_length=1, max_length=4_000)
    change: str = Field("", max_length=MAX_TEXT)
    tool: str = Field("", max_length=200)
    agent_id: str = Field("", max_length=200)


class CommandRun(ClientPayload):
    command: str = Field(min_length=1, max_length=MAX_TEXT)
    output: str = Field("", max_length=MAX_TEXT)
    exit_code: int | None = None
    directory: str = Field("", max_length=4_000)
    agent_id: str = Field("", max_length=200)
    # When it ran, if it was imported later
    written_at: Instant | None = None
    # For an imported run that failed: the same program ran in the session before, and passed
    passed_before: bool = False


class PhaseEvent(ClientPayload):
    phase: str = Field(min_length=1, max_length=64)
    detail: str = Field("", max_length=MAX_TEXT)


class Approval(ClientPayload):
    subject: str = Field("", max_length=2_000)
    detail: str = Field("", max_length=MAX_TEXT)
    phase: str = Field("", max_length=64)


class CustomEvent(Payload):
    """An event of a type that only its client knows."""

    type: str = Field(min_length=1, max_length=64)
    payload: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _bounded(self, info: ValidationInfo) -> CustomEvent:
        _check_size(self.payload, info)
        return self


def _about_tool(payload: Mapping[str, Any]) -> str:
    argument = payload.get("input")
    if isinstance(argument, Mapping):
        words = [argument[name] for name in _DESCRIPTIVE if isinstance(argument.get(name), str)]
        argument = next(iter(words or [value for value in argument.values() if isinstance(value, str)]), "")
    return joined(payload.get("tool"), argument)


# Tool arguments that best describe a call, the most informative first.
_DESCRIPTIVE = ("file_path", "pattern", "query", "path", "url", "command", "title", "description", "prompt", "name")


def _about_phase(payload: Mapping[str, Any]) -> str:
    return joined(payload.get("phase"), _detail(payload))


def _detail(payload: Mapping[str, Any]) -> str:
    # Clients also call it the reason.
    return joined(payload.get("detail") or payload.get("reason"))


MESSAGES = EventGroup("messages", "Messages", 20, "note")
ACTIONS = EventGroup("actions", "Tools, commands and files", 30)

_SET_ASIDE = sets_aside("messages", "Messages, commands and notes", order=220)
# Every type here is captured from clients.
_define = partial(
    define_event, retention=Retention.CAPTURED, rollback=_SET_ASIDE, changes_stream=False, from_clients=True
)

_define_message = partial(_define, schema=Message, group=MESSAGES)
_define_action = partial(_define, group=ACTIONS, is_tallied=True)
_define_phase = partial(_define, schema=PhaseEvent, group=WORK, about=_about_phase)
_define_approval = partial(
    _define,
    schema=Approval,
    group=WORK,
    about=lambda payload: joined(payload.get("subject") or payload.get("phase"), _detail(payload)),
)

USER_MESSAGE = _define_message(
    "message.user", label="Prompt", own_icon="user", nouns=("prompt", "prompts"), is_tallied=True, speech=Speech.PROMPT
)
ASSISTANT_MESSAGE = _define_message(
    "message.assistant", label="Answer", own_icon="answer", nouns=("answer", "answers"), speech=Speech.ANSWER
)
TOOL_MESSAGE = _define_action(
    "message.tool", ToolMessage, label="Tool", own_icon="tool", nouns=("tool call", "tool calls"), about=_about_tool
)
FILE_EDITED = _define_action(
    "file.edited",
    FileEdited,
    label="Edit",
    own_icon="edit",
    nouns=("file edit", "file edits"),
    about=lambda payload: payload.get("path", ""),
)
COMMAND_RUN = _define_action(
    "command.run",
    CommandRun,
    label="Command",
    own_icon="command",
    nouns=("command", "commands"),
    about=lambda payload: payload.get("command", ""),
)
_define_message("note.added", label="Note", nouns=("note", "notes"), speech=Speech.NOTE)
CONTEXT_COMPACTED = _define_message(
    "context.compacted",
    label="Context compacted",
    turn=TurnRule.OPTIONAL,
    nouns=("compacted context", "compacted contexts"),
)
_define_phase("phase.started", label="Phase started", nouns=("started phase", "started phases"))
_define_phase("phase.completed", label="Phase completed", nouns=("completed phase", "completed phases"))
_define_phase("gate.passed", label="Gate passed", own_icon="check", nouns=("passed gate", "passed gates"))
_define_phase(
    "gate.failed", label="Gate failed", own_icon="cross", nouns=("failed gate", "failed gates"), is_failure=True
)
_define_approval("user.approved", label="Approved", own_icon="check", nouns=("approval", "approvals"))
_define_approval(
    "user.rejected", label="Rejected", own_icon="cross", nouns=("rejection", "rejections"), is_failure=True
)
CUSTOM_RECORDED = _define(
    "custom.recorded",
    CustomEvent,
    label="Custom event",
    group=WORK,
    nouns=("custom event", "custom events"),
    about=lambda payload: joined(payload.get("type"), _about_phase(payload.get("payload", {}))),
)


def client_events() -> dict[str, EventType[Any]]:
    return {type_.name: type_ for type_ in event_types() if type_.from_clients}


def client_event(name: str) -> EventType[Any] | None:
    """Return the type of that name, written with a dot or an underscore."""
    types = client_events()
    return types.get(name) or types.get(name.replace("_", ".", 1))


def outline(schema: type[Payload]) -> str:
    """Return the fields of a payload in a line: ``phase, detail?``."""
    return ", ".join(f"{name}{'' if field.is_required() else '?'}" for name, field in schema.model_fields.items())


def outlines() -> dict[str, list[str]]:
    types: dict[str, list[str]] = {}
    for name, type_ in client_events().items():
        types.setdefault(outline(type_.schema), []).append(name)
    return types
