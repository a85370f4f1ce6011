"""The export of a store that can be imported again: its log as lines of JSON (decision 64)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

from django.core.exceptions import ObjectDoesNotExist
from django.db import Error as DatabaseError
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from governance.events import IMPORT_UNDONE, ImportUndone
from memoryhub import __version__
from memoryhub.core import log
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.events.event_types import EventType, event_type
from memoryhub.core.log.adopting import CopiedHeader
from memoryhub.core.log.digests import HEADER, canonical_json, new_payload_json
from memoryhub.core.log.erase import PAYLOAD_ERASED
from memoryhub.core.schemas import STORED, Instant, Payload, Position, Renumbering, Sha256, Version
from memoryhub.core.secrets.sanitize import TEXT, Shape
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import flat
from memoryhub.core.validation import explain

FORMAT = "memory-hub-log"
FORMAT_VERSION = 1
# Bytes of one line; the longest event that the hub writes has about a tenth.
MAX_LINE = 16 * 2**20
# Values of one line: an empty list takes 2 bytes there, and 70 in memory
MAX_VALUES = 500_000

# An export is of one store, and names it once
FIELDS = tuple(name for name in HEADER if name != "project_id")


def export_lines() -> Iterator[str]:
    """Yield the lines of an export of the current store: a header, every event in order, and their number."""
    store = current_store()
    yield _json_line({"format": FORMAT, "version": FORMAT_VERSION, "store": store.text, "made_by": __version__})
    events = 0
    # One statement reads one state of the store, however long the reader takes.
    for payload_json, digest, *header in log.iterate_columns("payload_json", "payload_digest", *FIELDS):
        fields = dict(zip(FIELDS, header, strict=True))
        if payload_json is None:
            fields["erased_digest"] = digest
        # The stored JSON is taken as it is: the same bytes, at a fraction of the cost.
        yield f'{canonical_json(fields)[:-1]},"payload":{payload_json or "null"}}}\n'
        events += 1
    yield _json_line({"events": events})


def _json_line(data: Any) -> str:
    return canonical_json(data) + "\n"


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ExportHeader(Model):
    format: Literal["memory-hub-log"]
    version: int
    store: str = Field(max_length=200)
    made_by: str = Field("", max_length=100)


class Trailer(Model):
    events: int = Field(ge=0)


_Name = Annotated[str, Field(max_length=200)]


class EventLine(Model):
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

    def check(self) -> None:
        """Check the payload as far as it can be without the events before it."""
        if self.payload is not None:
            self.read_payload(Renumbering(lambda position: require_earlier(position, self.position)), is_same=True)
            new_payload_json(self.payload).encode()

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


_UNDONE = IMPORT_UNDONE.name.encode()

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


def require_earlier(position: int, last: int) -> int:
    """Return the position of an event that the export has before, or Invalid."""
    if not 0 < position <= last:
        raise Invalid(f"it names #{position}, and there is no such event before it")
    return position


_EVENT = TypeAdapter(EventLine)


@dataclass(frozen=True, slots=True)
class ExportFile:
    """An export in a file, which can be read more than once."""

    path: Path

    def check(self) -> int:
        """Read the whole file and return the number of its events; Invalid if it is no complete export."""
        if not self.path.is_file():
            raise Invalid(f"{flat(str(self.path))} is not a file")
        count = 0
        for event in self.events():
            try:
                event.check()
            except UNFIT as error:
                raise refusal(event.position, error) from error
            count += 1
        return count

    def void(self) -> frozenset[int]:
        """Return the events that count no more, because their import was undone."""
        with self.path.open("rb") as file:
            lines = iter(lambda: file.readline(MAX_LINE + 1), b"")
            return frozenset(chain.from_iterable(_void_of(line) for line in lines if _UNDONE in line))

    def events(self) -> Iterator[EventLine]:
        """Yield the events, each checked by itself; Invalid with the number of the line."""
        with self.path.open("rb") as file:
            _check_header(file)
            erased: set[int] = set()
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), 1):
                if line.startswith(b'{"events":'):
                    _check_end(line, number, file, erased)
                    return
                event = read_event(line, number, _EVENT)
                _note_erasure(event, erased)
                yield event
            raise Invalid("the file ends before the export does; export again, or copy the whole file")


def _void_of(line: bytes) -> list[int]:
    try:
        event = _EVENT.validate_python(json.loads(line.decode()))
        is_undo = event.event_type == IMPORT_UNDONE.name and event.payload is not None
        return ImportUndone.model_validate(event.payload).void if is_undo else []
    except (ValueError, RecursionError):
        return []  # a text that contains the words, or a line that ``events`` refuses


def _check_header(file: BinaryIO) -> None:
    try:
        data = json.loads(file.readline(1000))
        version = data["version"] if data["format"] == FORMAT else None
    except (ValueError, TypeError, KeyError, RecursionError):
        version = None
    if version is None:
        raise Invalid("the file is no export of a store; make one with `memory-hub export jsonl`")
    if version != FORMAT_VERSION:
        raise Invalid(
            f"the export has format version {str(version)[:20]}, and this version of Memory Hub reads {FORMAT_VERSION}"
        )
    try:
        ExportHeader.model_validate(data)
    except ValidationError as error:
        raise Invalid(f"line 1: {explain(error)}") from error


E = TypeVar("E", bound=EventLine)


def read_event(
    line: bytes, number: int, kind: TypeAdapter[E], parse: Callable[[str], dict[str, Any]] = json.loads
) -> E:
    """Return the event of a line, checked by itself; Invalid with the number of the line."""
    if len(line) > MAX_LINE:
        raise wrong(number, f"it is longer than {MAX_LINE // 2**20} MiB")
    if sum(map(line.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise wrong(number, f"it has more than {MAX_VALUES:,} values")
    try:
        event = kind.validate_python(parse(line.decode()))
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


def _note_erasure(event: EventLine, erased: set[int]) -> None:
    if event.payload is None:
        erased.add(event.position)
    elif event.event_type == PAYLOAD_ERASED.name and isinstance(positions := event.payload.get("positions"), list):
        erased.difference_update(position for position in positions if isinstance(position, int))


def _check_end(line: bytes, number: int, file: BinaryIO, erased: set[int]) -> None:
    try:
        events = Trailer.model_validate_json(line).events
    except ValidationError as error:
        raise wrong(number, explain(error)) from error
    if events != number - 1 or file.read(1):
        raise Invalid(f"the export says that it has {events:,} events, and the file has other lines; export again")
    if erased:
        raise wrong(min(erased), "its payload is missing, and no event of the export records an erasure")


def wrong(number: int, reason: str) -> Invalid:
    # The header is the file's first line.
    return Invalid(f"line {number + 1}: {reason}; nothing was imported")
