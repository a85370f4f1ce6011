"""Enums and retention rules of project settings."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from memoryhub.core.events.event_types import Retention, names_where
from memoryhub.core.kinds import KINDS

if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[tuple(KINDS)]


class TurnPolicy(StrEnum):
    """Who opens and closes turns."""

    # The hub does.
    AUTO = "auto"
    # The client does, and sends a token with every write.
    STRICT = "strict"


class EndedWith(StrEnum):
    """What happens to a scratch session's entries when it ends."""

    PROMOTE = "promote"
    DISCARD = "discard"


class ReviewPolicy(StrEnum):
    """Which writes of agents need review."""

    OFF = "off"
    SAMPLED = "sampled"
    ALL = "all"


class Lessons(StrEnum):
    """What becomes of what the rules find in a session."""

    OFF = "off"
    # They wait in the inbox, and are in no pack before.
    PROPOSED = "proposed"
    ACCEPTED = "accepted"


class SearchMode(StrEnum):
    """How a store is searched."""

    # By words, and by meaning if there are vectors; by LIKE if SQLite has no FTS5.
    AUTO = "auto"
    # By words only; not at all without the full-text index.
    FTS5 = "fts5"
    # By LIKE, even if there is a full-text index.
    BASIC = "basic"


MAX_DAYS = 36_500
MAX_RULES = 50


class What(StrEnum):
    """What a retention rule applies to."""

    # Captured events (messages, notes, tool calls, commands, changed files) and context packs.
    CAPTURED = "captured"
    PACK = "pack"
    # Softly deleted memories.
    DELETED = "deleted"
    MEMORY = "memory"
    SESSION = "session"
    DECISION = "decision"
    ITERATION = "iteration"
    COMMIT = "commit"


# The kinds of entries that each condition can narrow.
_CONDITIONS = {
    "event_type": frozenset({What.CAPTURED}),
    "kind": frozenset({What.DELETED, What.MEMORY}),
    "type": frozenset({What.DELETED, What.MEMORY}),
    "scope": frozenset({What.DELETED, What.MEMORY}),
}


def _never(value: Any) -> Any:
    # TOML, environment variables and forms have no null.
    if isinstance(value, str) and value.strip().lower() == "never":
        return None
    return value


def _written_days(days: int | None) -> int | str:
    # As the value of a setting, null would mean its default.
    return "never" if days is None else days


# Whole days; None, written ``never``, keeps forever.
Days = Annotated[
    Annotated[int, Field(ge=1, le=MAX_DAYS)] | None, BeforeValidator(_never), PlainSerializer(_written_days)
]


class RetentionRule(BaseModel):
    """How long one sort of entry is kept; an omitted condition matches everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: What
    event_type: str | None = Field(None, max_length=64)
    kind: KindName | None = None
    type: str | None = Field(None, min_length=1, max_length=64)
    scope: Literal["session", "project", "org", "global"] | None = None
    after_days: Days

    @model_validator(mode="after")
    def _fits(self) -> RetentionRule:
        for name, whats in _CONDITIONS.items():
            if getattr(self, name) is not None and self.what not in whats:
                raise ValueError(f"{name} does not apply to {self.what}, only to {' and '.join(sorted(whats))}")
        if self.event_type is not None and self.event_type not in captured_types():
            raise ValueError(f"event_type must be one of {', '.join(captured_types())}, not {self.event_type}")
        return self

    def sentence(self) -> str:
        """Return the rule on one line: ``captured (event_type message.user) after 30 days``."""
        conditions = ", ".join(
            f"{name} {getattr(self, name)}" for name in _CONDITIONS if getattr(self, name) is not None
        )
        subject = f"{self.what} ({conditions})" if conditions else self.what
        if self.after_days is None:
            return f"{subject} never"
        return f"{subject} after {self.after_days} day{'s' * (self.after_days != 1)}"


def captured_types() -> list[str]:
    """Return the event types that count as captured, including context packs."""
    return [*names_where(lambda event_type: event_type.retention is Retention.CAPTURED), *pack_types()]


def pack_types() -> list[str]:
    """Return the event types that record a context pack."""
    return names_where(lambda event_type: event_type.retention is Retention.PACK)
