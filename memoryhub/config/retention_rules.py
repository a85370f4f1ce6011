"""How long things are kept, as a project's settings say it: rules of which the first that fits decides."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from memoryhub.core.events.event_types import Retention, names_where
from memoryhub.core.kinds.builtin import KINDS

if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[tuple(KINDS)]


class TurnPolicy(StrEnum):
    """Who keeps the turns of a project."""

    AUTO = "auto"
    """The hub opens and closes them by itself."""
    STRICT = "strict"
    """The client does, and shows a token with every write."""


class EndedWith(StrEnum):
    """What becomes of a scratch session's entries when it ends."""

    PROMOTE = "promote"
    DISCARD = "discard"


class ReviewPolicy(StrEnum):
    """Which of what agents write waits for a person."""

    OFF = "off"
    SAMPLED = "sampled"
    ALL = "all"


class SearchMode(StrEnum):
    """How a store is searched."""

    AUTO = "auto"
    """By words, and by meaning where vectors are at hand; by LIKE where SQLite has no FTS5."""
    FTS5 = "fts5"
    """By words alone, and not at all without the full-text index."""
    BASIC = "basic"
    """By LIKE, although there is a full-text index."""


MAX_DAYS = 36_500
MAX_RULES = 50


class What(StrEnum):
    """What a rule is about."""

    CAPTURED = "captured"
    """What clients told of their turns: messages, notes, calls of tools, commands, changed files; and context packs."""
    PACK = "pack"
    DELETED = "deleted"
    """Softly deleted memories."""
    MEMORY = "memory"
    SESSION = "session"
    DECISION = "decision"
    ITERATION = "iteration"
    COMMIT = "commit"


_OWN = {
    "event_type": frozenset({What.CAPTURED}),
    "kind": frozenset({What.DELETED, What.MEMORY}),
    "type": frozenset({What.DELETED, What.MEMORY}),
    "scope": frozenset({What.DELETED, What.MEMORY}),
}
"""What each narrower condition can be said of."""


def _never(value: Any) -> Any:
    """Return None for ``never``: TOML, environment variables and forms have no null."""
    return None if isinstance(value, str) and value.strip().lower() == "never" else value


def _written(days: int | None) -> int | str:
    """Return the word for None: as a setting's value, null would mean its default."""
    return "never" if days is None else days


Days = Annotated[Annotated[int, Field(ge=1, le=MAX_DAYS)] | None, BeforeValidator(_never), PlainSerializer(_written)]
"""A number of whole days; None, or the word never, keeps."""


class RetentionRule(BaseModel):
    """How long one sort of thing is kept; what is left out fits everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: What
    event_type: str | None = Field(None, max_length=64)
    kind: KindName | None = None
    type: str | None = Field(None, min_length=1, max_length=64)
    scope: Literal["session", "project", "org", "global"] | None = None
    after_days: Days

    @model_validator(mode="after")
    def _fits(self) -> RetentionRule:
        for name, whats in _OWN.items():
            if getattr(self, name) is not None and self.what not in whats:
                raise ValueError(f"{name} says nothing of {self.what}; only of {' and '.join(sorted(whats))}")
        if self.event_type is not None and self.event_type not in captured_types():
            raise ValueError(f"event_type must be one of {', '.join(captured_types())}, not {self.event_type}")
        return self

    def sentence(self) -> str:
        """Return the rule as one line: ``captured (event_type message.user) after 30 days``."""
        conditions = ", ".join(f"{name} {getattr(self, name)}" for name in _OWN if getattr(self, name) is not None)
        when = "never" if self.after_days is None else f"after {self.after_days} day{'s' * (self.after_days != 1)}"
        return f"{self.what} ({conditions}) {when}" if conditions else f"{self.what} {when}"


def captured_types() -> list[str]:
    """Return the names of the events that count as captured; context packs do, too."""
    return [*names_where(lambda known: known.retention is Retention.CAPTURED), *pack_types()]


def pack_types() -> list[str]:
    """Return the names of the events that record a context pack."""
    return names_where(lambda known: known.retention is Retention.PACK)
