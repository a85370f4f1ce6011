"""What the REST routes of all apps share: bodies made from commands, entity tags, and the schema of a problem."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from memoryhub.core.errors import Invalid
from memoryhub.core.schemas import Command
from memoryhub.core.validation import explain

C = TypeVar("C", bound=Command)

_ENTITY_TAG = re.compile(r'(?:"(\d{1,9})"|(\d{1,9}))')


class Problem(BaseModel):
    """What went wrong (RFC 9457, ``application/problem+json``)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="about:blank# and the code")
    title: str
    status: int = Field(description="the HTTP status again")
    detail: str = Field(description="one sentence that says what to do next")
    code: str = Field(description="stable, for programs")


def problems(*statuses: int) -> dict[int, type[Problem]]:
    """Return the part of a route's ``response`` that documents these errors."""
    return dict.fromkeys(statuses, Problem)


def without(command: type[Command], *names: str) -> type[Command]:
    """Return the schema of ``command`` without the fields that a route takes from its path or a header."""
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in command.model_fields.items() if name not in names
    }
    return create_model(f"{command.__name__}Body", __base__=Command, __doc__=command.__doc__, **fields)


def command_of(schema: type[C], body: Command, **fields: Any) -> C:
    """Return the command that a body and what came beside it make.

    Raises:
        Invalid: together they break a rule.
    """
    try:
        return schema.model_validate({**body.model_dump(exclude_unset=True), **fields})
    except ValidationError as error:
        raise Invalid(explain(error)) from error


def entity_tag(version: int) -> str:
    """Return a version as an ``ETag``."""
    return f'"{version}"'


def version_of_tag(if_match: str | None) -> int | None:
    """Return the version that ``If-Match`` names; None where the header is absent or ``*``.

    Raises:
        Invalid: it is no entity tag of a memory.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    found = _ENTITY_TAG.fullmatch(if_match.strip())
    if not found:
        raise Invalid(f'If-Match must be the ETag of a read, such as "3", not {if_match[:40]!r}')
    return int(found[1] or found[2])
