"""Base classes and field types of events, requests and lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    StringConstraints,
    ValidationInfo,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from memoryhub.core import clock
from memoryhub.core.secrets.sanitize import GeneratedMark, NameMark
from memoryhub.core.text import FILLED_LINE, ONE_LINE

# Validation context for stored events: they were sanitised and checked before they were appended.
STORED = "stored"


def _without_secrets(value: object, info: ValidationInfo) -> object:
    # Before lower-casing, because many secret rules depend on case.
    if info.context == STORED or not isinstance(value, str):
        return value
    from memoryhub.core.secrets.sanitize import sanitize_text

    return sanitize_text(value)[0]


# For text stored in lower case. Must follow the constraints: pydantic leaves later ones out of the JSON schema.
LOWERED = BeforeValidator(_without_secrets)
# Text without line breaks, because lists print one line per item.
Line = Annotated[str, StringConstraints(strip_whitespace=True, pattern=ONE_LINE)]
FilledLine = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=FILLED_LINE)]
Tag = Annotated[
    str,
    StringConstraints(strip_whitespace=True, to_lower=True, min_length=1, max_length=64, pattern=FILLED_LINE),
    LOWERED,
]
# A tag in an event. Logs of earlier versions contain tags with line breaks and must still open.
StoredTag = Annotated[
    str, StringConstraints(strip_whitespace=True, to_lower=True, min_length=1, max_length=64), LOWERED, NameMark()
]
# A name in an event that may be derived from a text: a topic key, a path of a file
DerivedName = Annotated[str, NameMark()]
Identifier = Annotated[FilledLine, StringConstraints(max_length=200)]
MAX_AUTHOR = 100
# Every JSON parser reads integers up to this one exactly; SQLite stores 64 bits.
MAX_INTEGER = 2**53
EntityId = Annotated[int, Field(ge=1, le=MAX_INTEGER)]
Position = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Version = Annotated[int, Field(ge=1, le=MAX_INTEGER)]


# Pydantic would read a number as seconds since 1970: since=2026 would mean 00:33 on 1 January 1970.
_NUMBER = re.compile(r"\s*[+-]?\d*\.?\d*\s*")


def _not_a_number(value: object) -> object:
    if isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise PydanticCustomError("datetime_parsing", "a time must be written as ISO 8601, not as a number")
    return value


@dataclass(frozen=True, slots=True)
class Generated(GeneratedMark):
    """Marks a generated event field, which the sanitiser and redaction never change.

    Its format is checked before an event is appended, so that no text bypasses the sanitiser. It isn't checked when the
    log is read: events of earlier versions may contain a masked digest.
    """

    # Regular expression for the whole value
    pattern: str
    # What the value must be, for the error
    name: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: str, info: ValidationInfo) -> str:
        if info.context != STORED and not re.fullmatch(self.pattern, value, re.ASCII):
            raise ValueError(f"it must be {self.name}")
        return value


class LeftOut(Exception):
    """The event of another log that a payload names is not imported."""


@dataclass(frozen=True, slots=True)
class Renumbering:
    """Validation context of payloads from another log: their positions are replaced by those in this log."""

    # The position of an event in this log; None if it is not imported
    to: Callable[[int], int | None]

    def require(self, position: int) -> int:
        renumbered = self.to(position)
        if renumbered is None:
            raise LeftOut(position)
        return renumbered

    def stream(self, name: str) -> str:
        """Return the name of a stream in this log; most have the position of their first event."""
        thing, _, number = name.partition(":")
        if thing in STREAMS_WITH_NAMES or not (number.isascii() and number.isdigit()):
            return name
        return f"{thing}:{self.require(int(number))}"


# Streams named after something else than a position
STREAMS_WITH_NAMES = frozenset({"session", "turn", "commit"})


def renumbered(position: int, info: ValidationInfo) -> int:
    """Validate a position of the log: an import replaces it by the one in this log."""
    if position and isinstance(info.context, Renumbering):
        return info.context.require(position)
    return position


def _renumbered_stream(name: str, info: ValidationInfo) -> str:
    return info.context.stream(name) if isinstance(info.context, Renumbering) else name


def _renumbered_known(positions: list[int], info: ValidationInfo) -> list[int]:
    if not isinstance(info.context, Renumbering):
        return positions
    return [new for position in positions if (new := info.context.to(position)) is not None]


def _renumbered_all(positions: list[int], info: ValidationInfo) -> list[int]:
    imported = _renumbered_known(positions, info)
    if positions and not imported:
        raise LeftOut(positions[0])
    return imported


def _renumbered_streams(names: list[str], info: ValidationInfo) -> list[str]:
    imported = []
    for name in names:
        with suppress(LeftOut):
            imported.append(_renumbered_stream(name, info))
    return imported


# The position of an event of the same log, and so the id of an entity; 0 for none. Imports renumber these fields.
EventRef = Annotated[int, AfterValidator(renumbered)]
# The name of a stream of the same log
StreamRef = Annotated[str, AfterValidator(_renumbered_stream)]
# Imports leave out those that they do not know.
EventRefs = Annotated[list[int], AfterValidator(_renumbered_all)]
# The same, and the list may become empty; of ``EventRefs``, the event is then left out, too.
KnownEventRefs = Annotated[list[int], AfterValidator(_renumbered_known)]
RenumberedStreams = AfterValidator(_renumbered_streams)


Sha256 = Annotated[str, Generated("[0-9a-f]{64}", "a SHA-256 of 64 hexadecimal digits")]
GitSha = Annotated[str, Generated("[0-9a-f]{7,40}|[0-9a-f]{64}", "a commit's hash in hexadecimal digits")]

# A time as written by clock.to_text
Instant = Annotated[
    str, Generated(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "a time such as 2026-11-20T08:30:00.000Z")
]


def _with_zone(moment: datetime, info: ValidationInfo) -> datetime:
    in_utc = clock.in_utc(moment) if info.context == STORED else clock.from_viewer(moment)
    return moment if moment.tzinfo else in_utc


# A time in ISO 8601; without a zone it is in the viewer's, and a date is the beginning of the day
Moment = Annotated[datetime, BeforeValidator(_not_a_number), AfterValidator(_with_zone)]

# How ``tools/list`` shows a field. It is sent with every conversation, so it has only what a model needs.
# The field is accepted but not listed, or only in the profile named.
UNLISTED = "x-unlisted"
# The field's name explains it: its description is not listed.
SELF_EVIDENT = "x-self-evident"
# The field's listed form; it accepts others too.
LISTED_AS = "x-listed-as"
# The field is listed in full, though arguments of its name are explained in the server's instructions.
EXPLAINED_HERE = "x-explained-here"

unlisted: dict[str, JsonValue] = {UNLISTED: True}
only_in_full: dict[str, JsonValue] = {UNLISTED: "full"}
explained_here: dict[str, JsonValue] = {EXPLAINED_HERE: True}
self_evident: dict[str, JsonValue] = {SELF_EVIDENT: True}
IdempotencyKey = Annotated[
    Identifier | None, Field(description="a repeated key returns the first answer", json_schema_extra=unlisted)
]


class Payload(BaseModel):
    """Base of event payloads. Unknown fields are refused; absent fields are left out of the log."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Command(BaseModel):
    """Base of requests: the body of a REST call or the arguments of an MCP tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def at_most(limit: int) -> AfterValidator:
    """Take a greater number as ``limit``: how much a list returns is bounded, but asking for more is no fault."""
    return AfterValidator(lambda number: min(number, limit))


class Paging(Command):
    """Paging arguments of lists."""

    limit: Annotated[int, at_most(100)] = Field(
        20, ge=1, le=MAX_INTEGER, description="maximum number of results, at most 100"
    )
    cursor: str | None = Field(None, max_length=500, description="next_cursor of the previous answer")
    compact: bool = Field(False, description="ids and names only")
    max_tokens: int | None = Field(None, ge=50, le=100_000, description="budget of the whole answer")


class Meta(BaseModel):
    """Counts and next cursor of a list."""

    total_count: int = Field(description="number of matches")
    returned_count: int = Field(description="number of results in this answer")
    truncated: bool = Field(description="max_tokens left some out, or is too small for one")
    estimated_tokens: int = Field(description="of this answer, in the form that is sent")
    has_more: bool
    next_cursor: str | None = Field(None, description="cursor of the next page")
    mode: str | None = Field(None, description="of a search: hybrid: words and meaning; fts5: words; basic: LIKE")
    note: str | None = Field(None, description="how the results were found")
    absent: bool | None = Field(
        None, description="of a search: nothing stored is about the question; the results are only the nearest"
    )


class Listing(BaseModel):
    """A page of results."""

    results: list[dict[str, Any]]
    meta: Meta
    # The results as text, and what formatted them
    _texts: Sequence[str] = ()
    _formatter: Callable[[dict[str, Any]], str] | None = None

    def keep_texts(self, texts: Sequence[str], formatter: Callable[[dict[str, Any]], str]) -> None:
        """Keep what was formatted to count its tokens, so that ``texts_by`` does not format it again."""
        self._texts, self._formatter = texts, formatter

    def texts_by(self, formatter: Callable[[dict[str, Any]], str]) -> Sequence[str]:
        return self._texts if formatter is self._formatter else [formatter(item) for item in self.results]
