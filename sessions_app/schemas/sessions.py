from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from memoryhub.core.schemas import (
    LOWERED,
    Command,
    EntityId,
    IdempotencyKey,
    Identifier,
    Line,
    Paging,
    only_in_full,
    self_evident,
    unlisted,
)
from sessions_app.events.client import outlines
from sessions_app.models import SessionMode, SessionStatus, TurnStatus

_MODES = {"working_period": SessionMode.WORKING.value, "scratch_space": SessionMode.SCRATCH.value}
Mode = Annotated[SessionMode, BeforeValidator(lambda mode: _MODES.get(str(mode), mode))]
MAX_NAME = 200
MAX_METADATA = 20_000


class SessionMetadata(BaseModel):
    """A client's own data of a session. ``mode`` and ``auto_promote`` have an effect."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    mode: Annotated[Mode | None, WithJsonSchema({"enum": [*_MODES, *SessionMode.values, None]})] = None
    auto_promote: bool = Field(False, description="session_end promotes a scratch session's entries without asking")

    @model_validator(mode="after")
    def _bounded(self) -> SessionMetadata:
        if len(self.model_dump_json()) > MAX_METADATA:
            raise ValueError(f"metadata may have at most {MAX_METADATA} characters as JSON")
        return self


class SessionStart(Command):
    """Begin a session."""

    purpose: Line = Field("", max_length=2_000, description="goal of the session", json_schema_extra=self_evident)
    mode: Mode = Field(SessionMode.WORKING, description="scratch: entries are temporary")
    directory: Line = Field("", max_length=1_000, description="working directory")
    agent: Line = Field("", max_length=200, description="default: the client's name")
    session_id: Identifier | None = Field(None, description="default: a new one")
    name: Line = Field(
        "", max_length=MAX_NAME, description="a label, before the purpose", json_schema_extra=only_in_full
    )
    metadata: SessionMetadata | None = Field(
        None, description="your own data; mode and auto_promote have an effect", json_schema_extra=only_in_full
    )
    idempotency_key: IdempotencyKey = None

    @model_validator(mode="before")
    @classmethod
    def _normalize(cls, given: Any) -> Any:
        # A name becomes part of the purpose; metadata may hold the mode.
        if not isinstance(given, dict):
            return given
        metadata = given.get("metadata")
        if isinstance(metadata, dict) and metadata.get("mode"):
            given = {"mode": metadata["mode"], **given}
        if not given.get("name"):
            return given
        rest = {name: value for name, value in given.items() if name != "name"}
        texts = [given[name] for name in ("name", "purpose") if given.get(name)]
        if not all(isinstance(text, str) for text in texts):
            return given
        if len((given.get("name") or "").strip()) > MAX_NAME:
            return given  # refused by the field's max_length
        return {**rest, "purpose": ": ".join(texts)}


class SessionEnd(Command):
    """End a session."""

    summary: str = Field(
        "", max_length=20_000, description="what was done, learnt and left open", json_schema_extra=self_evident
    )
    session_id: Identifier | None = Field(
        None,
        description="default: this connection's session, else the only active one",
        json_schema_extra=only_in_full,
    )
    discard: bool = Field(False, description="delete a scratch session's entries")
    promote: bool = Field(
        False, description="move a scratch session's entries to the project", json_schema_extra=only_in_full
    )
    status: Literal["completed", "discarded"] | None = Field(
        None, description="discarded is discard=true; completed leaves the choice open", json_schema_extra=only_in_full
    )
    keep: list[EntityId] = Field(default_factory=list, max_length=1_000, description="ids to promote")
    idempotency_key: IdempotencyKey = None

    @model_validator(mode="before")
    @classmethod
    def _normalize(cls, given: Any) -> Any:
        is_discarded = isinstance(given, dict) and given.get("status") == "discarded"
        return {"discard": True, **given} if is_discarded else given


class SessionList(Paging):
    """List sessions, newest first."""

    status: SessionStatus | None = Field(None, description="only these", json_schema_extra=self_evident)


class SessionTouch(Command):
    """Pause or resume a session."""

    session_id: Identifier | None = Field(None, description="default: this connection's")


class SessionView(BaseModel):
    """A session."""

    id: int
    session_id: str
    purpose: str
    mode: SessionMode
    status: SessionStatus
    directory: str
    agent: str
    started_at: datetime
    ended_at: datetime | None
    summary: str
    metadata: dict[str, Any]


class TurnBegin(Command):
    """Begin a turn; its events and its end must send the returned ack_token."""

    session_id: Identifier | None = Field(None, description="default: this connection's; a new id begins a session")
    turn_id: Identifier | None = Field(None, description="default: a new one")


class TurnCall(Command):
    """A call that must send the token of an open turn."""

    ack_token: str | None = Field(None, max_length=200, description="from turn_begin")
    session_id: Identifier | None = Field(
        None, description="must match the token's, if given", json_schema_extra=unlisted
    )
    turn_id: Identifier | None = Field(None, description="must match the token's, if given", json_schema_extra=unlisted)


def _parsed(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError("it must be an object, or an object as JSON text") from error


# An object; its text as JSON is accepted too
EventData = Annotated[dict[str, Any], BeforeValidator(_parsed)]


# No colon or space: the hub's own traces, such as those of imports, have one. Masked secrets don't match either.
TraceId = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"),
    LOWERED,
]


def _fields_of_payloads() -> str:
    lines = [f"{', '.join(types)}: {fields}" for fields, types in outlines().items()]
    return f"{'; '.join(lines)}. Other fields are stored too"


class EventAppend(TurnCall):
    """Append an event to the open turn."""

    type: Line = Field(max_length=64, description="e.g. message.user, phase_completed, or a word of your own")
    payload: EventData = Field(description=_fields_of_payloads())
    phase: Line = Field("", max_length=64, description="goes into the payload", json_schema_extra=only_in_full)
    trace_id: TraceId | None = Field(None, description="groups events across systems", json_schema_extra=self_evident)
    idempotency_key: IdempotencyKey = None


class TurnEnd(TurnCall):
    """End the open turn."""

    summary: str = Field("", max_length=20_000, description="result of the turn", json_schema_extra=self_evident)


class TurnList(Paging):
    """List turns, newest first."""

    session_id: Identifier | None = Field(None, description="only of this session")
    status: TurnStatus | None = Field(None, description="only these", json_schema_extra=self_evident)


class TurnView(BaseModel):
    """A turn."""

    id: int
    session_id: str
    turn_id: str
    status: TurnStatus
    automatic: bool
    actor: str
    began_at: datetime
    ended_at: datetime | None
    expires_at: datetime
    event_count: int
    summary: str
