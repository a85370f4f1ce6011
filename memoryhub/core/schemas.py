"""Bases of the pydantic schemas: what an event carries, what a caller sends, what a list answers."""

from __future__ import annotations

import re
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
from memoryhub.core.secrets.shapes import GeneratedMark
from memoryhub.core.text import FILLED_LINE, ONE_LINE

STORED = "stored"
"""The context of validating what the log has: it was made fit to be kept before it was appended."""


def _without_secrets(value: object, info: ValidationInfo) -> object:
    """Sanitise a text that is about to lose its upper case: a secret could not be told by its letters afterwards."""
    if info.context == STORED or not isinstance(value, str):
        return value
    from memoryhub.core.secrets.sanitize import sanitize_text

    return sanitize_text(value)[0]


# Of every word that is kept in lower case. After the constraints: those that follow it are in no schema.
LOWERED = BeforeValidator(_without_secrets)
Line = Annotated[str, StringConstraints(strip_whitespace=True, pattern=ONE_LINE)]
"""A text on one line: lists show it as part of a line of theirs, which a line break in it would end."""
FilledLine = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=FILLED_LINE)]
Lowered = Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True, pattern=ONE_LINE), LOWERED]
"""A word that is kept in lower case."""
Tag = Annotated[
    str,
    StringConstraints(strip_whitespace=True, to_lower=True, min_length=1, max_length=64, pattern=FILLED_LINE),
    LOWERED,
]
StoredTag = Annotated[
    str,
    StringConstraints(strip_whitespace=True, to_lower=True, min_length=1, max_length=64),
    LOWERED,
]
"""A tag as events have it. Logs of earlier versions hold tags with line breaks, and must still open."""
Identifier = Annotated[FilledLine, StringConstraints(max_length=200)]
# The largest integer that JSON readers everywhere keep exactly; well within SQLite's 64 bits.
MAX_INTEGER = 2**53
EntityId = Annotated[int, Field(ge=1, le=MAX_INTEGER)]
Position = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Version = Annotated[int, Field(ge=1, le=MAX_INTEGER)]


# Pydantic reads these as seconds since 1970, so that since=2026 would mean half an hour after midnight of that day.
_NUMBER = re.compile(r"\s*[+-]?\d*\.?\d*\s*")


def _not_a_number(value: object) -> object:
    if isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise PydanticCustomError("datetime_parsing", "a time is written as ISO 8601, not as a number")
    return value


@dataclass(frozen=True, slots=True)
class Generated(GeneratedMark):
    """Marks a field of an event that is generated, not written: the sanitiser and redaction never change it.

    The format is checked before an event is appended, so no text gets past the sanitiser in such a field. It is not
    checked when the log is read: events of earlier versions may hold a masked digest.
    """

    pattern: str
    """A regular expression for the whole value."""
    name: str
    """What the value must be, for the error."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the format after the checks of the type itself."""
        return core_schema.with_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: str, info: ValidationInfo) -> str:
        if info.context != STORED and not re.fullmatch(self.pattern, value, re.ASCII):
            raise ValueError(f"it must be {self.name}")
        return value


Sha256 = Annotated[str, Generated("[0-9a-f]{64}", "a SHA-256 of 64 hexadecimal digits")]
GitSha = Annotated[str, Generated("[0-9a-f]{7,40}|[0-9a-f]{64}", "a commit's hash in hexadecimal digits")]
Instant = Annotated[
    str, Generated(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "a time such as 2026-11-20T08:30:00.000Z")
]
"""A time as ``clock.to_text`` writes it."""


def _with_zone(moment: datetime) -> datetime:
    in_utc = clock.in_utc(moment)
    return moment if moment.tzinfo else in_utc


Moment = Annotated[datetime, BeforeValidator(_not_a_number), AfterValidator(_with_zone)]
"""A time, written as ISO 8601; one without a zone is UTC."""

# How ``tools/list`` shows a field. It is sent with every conversation, so it has only what a model needs.
# The field is accepted but not listed.
UNLISTED = "x-unlisted"
# The field's name explains it: its description is not listed.
SELF_EVIDENT = "x-self-evident"
# The field's listed form; it accepts others too.
LISTED_AS = "x-listed-as"
# The field is listed in full, though arguments of its name are explained in the server's instructions.
EXPLAINED_HERE = "x-explained-here"

unlisted: dict[str, JsonValue] = {UNLISTED: True}
explained_here: dict[str, JsonValue] = {EXPLAINED_HERE: True}
self_evident: dict[str, JsonValue] = {SELF_EVIDENT: True}
IdempotencyKey = Annotated[
    Identifier | None, Field(description="a repeated key returns the first answer", json_schema_extra=unlisted)
]


class Payload(BaseModel):
    """Base of what an event says. Unknown fields are refused; absent ones are left out of the log."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Command(BaseModel):
    """Base of what a caller sends: the body of a REST call and the arguments of an MCP tool alike."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Paging(Command):
    """Arguments of every list."""

    limit: int = Field(20, ge=1, le=100, description="maximum number of results")
    cursor: str | None = Field(None, max_length=500, description="next_cursor of the previous answer")
    compact: bool = Field(False, description="ids and names only")
    max_tokens: int | None = Field(None, ge=50, le=100_000, description="budget of the whole answer")


class Meta(BaseModel):
    """Counts of a list, and how to go on."""

    total_count: int = Field(description="number of matches")
    returned_count: int = Field(description="number of results in this answer")
    truncated: bool = Field(description="max_tokens left some out")
    estimated_tokens: int = Field(description="of the results as text, one line each")
    has_more: bool
    next_cursor: str | None = Field(None, description="cursor of the next page")
    mode: str | None = Field(None, description="of a search: hybrid: words and meaning; fts5: words; basic: LIKE")
    note: str | None = Field(None, description="how the results were found")


class Listing(BaseModel):
    """A page of results."""

    results: list[dict[str, Any]]
    meta: Meta
