"""Helpers for REST routes: bodies made from commands, entity tags, and the schema of a problem."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema, create_model

from memoryhub.core.errors import Invalid
from memoryhub.core.schemas import Command
from memoryhub.core.validation import explain

C = TypeVar("C", bound=Command)

_ENTITY_TAG = r'^(\*|[1-9][0-9]{0,8}|"[1-9][0-9]{0,8}")$'
# The values of ``If-Match``; ``version_of_tag`` also accepts a tag without quotes.
EntityTag = Annotated[str, WithJsonSchema({"type": "string", "pattern": _ENTITY_TAG})]


class Problem(BaseModel):
    """An error (RFC 9457, ``application/problem+json``)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="the address of the code's documentation")
    title: str
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="one sentence with the next step")
    code: str = Field(description="stable, for programs")


def problems(*statuses: int) -> dict[int, type[Problem]]:
    return dict.fromkeys(statuses, Problem)


def without(command: type[Command], *names: str, called: str = "") -> type[Command]:
    """Return the schema of ``command`` without the fields that a route takes from its path or a header."""
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in command.model_fields.items() if name not in names
    }
    return create_model(called or f"{command.__name__}Body", __base__=Command, __doc__=command.__doc__, **fields)


def command_of(schema: type[C], body: Command, **fields: Any) -> C:
    try:
        return schema.model_validate({**body.model_dump(exclude_unset=True), **fields})
    except ValidationError as error:
        raise Invalid(explain(error)) from error


def entity_tag(version: int) -> str:
    return f'"{version}"'


def version_of_tag(if_match: str | None) -> int | None:
    """Return the version in ``If-Match``; None if the header is absent or ``*``."""
    if if_match is None or if_match == "*":
        return None
    if not re.fullmatch(_ENTITY_TAG, if_match):
        raise Invalid(f'If-Match must be the ETag of a read, such as "3", not {if_match[:40]!r}')
    return int(if_match.strip('"'))
