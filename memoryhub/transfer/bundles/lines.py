"""One line of a file of a log: an event, checked by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from django.core.exceptions import ObjectDoesNotExist
from django.db import Error as DatabaseError
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.events.event_types import EventType, event_type
from memoryhub.core.log.adopting import CopiedHeader
from memoryhub.core.log.digests import new_payload_json
from memoryhub.core.schemas import STORED, Instant, Payload, Position, Renumbering, Sha256, Version
from memoryhub.core.secrets.sanitize import TEXT, Shape
from memoryhub.core.text import flat
from memoryhub.core.validation import explain

# Bytes of one line; the longest event that the hub writes has about a tenth.
MAX_LINE = 16 * 2**20
# Values of one line: an empty list takes 2 bytes there, and 70 in memory
MAX_VALUES = 500_000
# Follows the other fields of an event; in a string, its quotation marks would be escaped.
PAYLOAD = ',"payload":'


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


_Name = Annotated[str, Field(max_length=200)]


class EventLine(Model):
    """An event without its place in a chain, as exports of version 1 have it."""

    position: Position
    event_id: Annotated[str, Field(pattern=r"^[0-9a-f-]{36}$")]
    session_id: _Name
    turn_id: _Name
    stream_id: Annotated[_Name, Field(pattern=r"^[a-z]+(?::(?s:.)+)?$")]
    stream_seq: Version
    event_type: _Name
    event_version: Version
    occurred_at: Instant
    actor: _Name
    source: Annotated[str, Field(max_length=32, pattern="^[a-z]+$")]
    idempotency_key: _Name | None
    trace_id: Annotated[str, Field(max_length=64)]
    erased_digest: Sha256 | None = None
    payload: dict[str, JsonValue] | None

    @property
    def known_type(self) -> EventType[Any]:
        defined = event_type(self.event_type)
        if defined is None or self.event_version > defined.version:
            version = f" in version {self.event_version}" if defined else ""
            raise ValueError(f"this version does not know events of type {flat(self.event_type)[:80]!r}{version}")
        return defined

    def read_payload(self, context: Renumbering, *, is_same: bool) -> tuple[Payload, Shape | None]:
        """Return the payload in this log's numbers, and which of its parts are free text, if not those of its type.

        ``is_same``: the numbers stay the same, so that a payload of an earlier version, which checked less, can be read
        as the log reads it; then no part of it counts as generated.
        """
        schema = self.known_type.schema
        try:
            return schema.model_validate(self.payload, context=context), None
        except ValidationError:
            if not is_same:
                raise
            return schema.model_validate(self.payload, context=STORED), TEXT

    def stored_payload(self) -> Payload:
        """Return the payload in its own numbers, checked as far as it can be without the events before it."""
        new_payload_json(self.payload).encode()
        context = Renumbering(lambda position: require_earlier(position, self.position))
        return self.read_payload(context, is_same=True)[0]

    def header(self, stream: str, stream_seq: int) -> CopiedHeader:
        return CopiedHeader(
            event_id=self.event_id,
            session_id=self.session_id,
            turn_id=self.turn_id,
            stream_id=stream,
            stream_seq=stream_seq,
            version=self.event_version,
            occurred_at=self.occurred_at,
            actor=self.actor,
            source=self.source,
            trace_id=self.trace_id,
            idempotency_key=self.idempotency_key,
        )


class ChainedEvent(EventLine):
    """An event with what proves it: all columns of the log."""

    project_id: str = Field(max_length=64)
    salt: str | None = Field(pattern="^[0-9a-f]{32}$")
    payload_digest: Sha256
    chain_digest: Sha256
    # The payload as it is stored, byte for byte
    payload_json: str | None

    # As the log reads it: it was checked when it was written, by the rules of that day
    def stored_payload(self) -> Payload:
        payload: Payload = self.known_type.schema.model_validate_json(self.payload_json or "", context=STORED)
        return payload


# What an event raises that does not fit; any other exception is a fault of the hub.
UNFIT = (
    *(HubError, ValidationError, DatabaseError, ObjectDoesNotExist),
    *(LookupError, ValueError, TypeError, OverflowError),
)


def refusal(position: int, error: Exception) -> Invalid:
    if isinstance(error, ValidationError):
        return wrong(position, explain(error))
    if isinstance(error, HubError):
        return wrong(position, error.message)
    return wrong(position, f"it does not fit the events before it ({type(error).__name__})")


def wrong(number: int, reason: str) -> Invalid:
    # The header is the file's first line.
    return Invalid(f"line {number + 1}: {reason}; nothing was imported")


def require_earlier(position: int, last: int) -> int:
    """Return the position of an event that the file has before, or Invalid."""
    if not 0 < position <= last:
        raise Invalid(f"it names #{position}, and there is no such event before it")
    return position


def read_event(line: bytes, number: int) -> EventLine:
    """Return the event of a line of version 1; Invalid with the number of the line."""
    return _read(line, number, EventLine, json.loads)


def read_chained(line: bytes, number: int, project_id: str) -> ChainedEvent:
    """Return the event of a line of a project's file; Invalid with the number of the line."""
    event = _read(line, number, ChainedEvent, lambda text: {"project_id": project_id, **_parse_chained(text)})
    if event.project_id != project_id:
        raise wrong(number, f"it is of {event.project_id!r}, not of {project_id!r}")
    return event


def _parse_chained(line: str) -> dict[str, Any]:
    # Apart, so that the stored text is what was parsed.
    header, separator, payload = line.partition(PAYLOAD)
    if not separator or not payload.endswith("}"):
        raise ValueError("it has no payload")
    payload_json = payload[:-1]
    fields: dict[str, Any] = json.loads(header + "}")
    payload = json.loads(payload_json)
    if payload is None:
        return {"erased_digest": fields.get("payload_digest"), **fields, "payload": None, "payload_json": None}
    return {**fields, "payload": payload, "payload_json": payload_json}


E = TypeVar("E", bound=EventLine)


def _read(line: bytes, number: int, kind: type[E], parse: Callable[[str], dict[str, Any]]) -> E:
    if sum(map(line.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise wrong(number, f"it has more than {MAX_VALUES:,} values")
    try:
        event = kind.model_validate(parse(line.decode()))
        event.known_type  # noqa: B018  (raises if unknown)
    except UnicodeDecodeError as error:
        raise wrong(number, "it is not UTF-8 text") from error
    except RecursionError as error:
        raise wrong(number, "it is nested too deeply") from error
    except ValidationError as error:
        raise wrong(number, explain(error)) from error
    except json.JSONDecodeError as error:
        raise wrong(number, "it is not one complete JSON object") from error
    except ValueError as error:
        raise wrong(number, str(error)) from error
    if event.position != number:
        raise wrong(number, f"its position is {event.position}, not {number}")
    if (event.payload is None) != (event.erased_digest is not None):
        raise wrong(number, "an event has either a payload or the digest of an erased one")
    return event
