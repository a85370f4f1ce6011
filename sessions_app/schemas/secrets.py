"""Trying out what would be taken out of a text: what callers send and get."""

from __future__ import annotations

from pydantic import BaseModel, Field

from memoryhub.core.schemas import Command
from sessions_app.secret_rules import MAX_ALLOWED, MAX_RULES, Allowed, SecretRule

MAX_TEXT = 500_000


class Sanitise(Command):
    """See what would be taken out of a text before it is kept; nothing is written."""

    text: str = Field(max_length=MAX_TEXT, description="what would be kept")
    secret_rules: list[SecretRule] | None = Field(
        None, max_length=MAX_RULES, description="instead of the project's own rules"
    )
    secret_allow: list[Allowed] | None = Field(
        None, max_length=MAX_ALLOWED, description="instead of the project's allow-list"
    )


class FoundSecret(BaseModel):
    """What would be taken out: which rule says so, and where it stands in the text; never what it is."""

    type: str
    rule: str
    description: str
    origins: list[str] = Field(description="where the rule was taken from, with its licence")
    start: int = Field(description="in characters")
    end: int


class Sanitised(BaseModel):
    """A text as it would be kept."""

    text: str
    found: list[FoundSecret]
