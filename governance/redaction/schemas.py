"""Input and output of redaction."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, model_validator

from memoryhub.core.schemas import Command, EntityId

Label = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]


_SPACE = re.compile(r"\s+")


class RedactionSelect(Command):
    """What to redact, and where.

    ``text``, ``pattern`` or ``rules`` selects what to remove from texts; ``whole`` erases everything that ``ids`` or
    ``search`` selects.
    """

    text: str | None = Field(None, min_length=2, max_length=100_000, description="this exact text")
    pattern: str | None = Field(None, min_length=1, max_length=1_000, description="an RE2 regular expression")
    rules: bool = Field(False, description="whatever the current secret rules find")
    ignore_case: bool = Field(False, description="applies to text and pattern")
    whole: bool = Field(False, description="erase the selected items completely")
    ids: list[EntityId] = Field(default_factory=list, max_length=1_000, description="only in items with these ids")
    search: str | None = Field(None, min_length=1, max_length=2_000, description="only in the results of this search")
    event_types: list[str] = Field(default_factory=list, max_length=50, description="only in events of these types")
    label: Label = Field("removed", description="placeholder: [REDACTED:label]")

    def texts(self) -> list[str]:
        """Return the text and its form on one line, in which context packs store queries; longest first."""
        if self.text is None:
            return []
        on_one_line = _SPACE.sub(" ", self.text)
        texts = {self.text, on_one_line} if len(on_one_line.strip()) > 1 else {self.text}
        return sorted(texts, key=len, reverse=True)

    @property
    def narrowed(self) -> bool:
        return bool(self.ids or self.search or self.event_types)

    @model_validator(mode="after")
    def _one_way(self) -> RedactionSelect:
        ways = [name for name in ("text", "pattern", "rules", "whole") if getattr(self, name)]
        if len(ways) != 1:
            raise ValueError("give exactly one of text, pattern, rules and whole")
        if self.whole and not (self.ids or self.search):
            raise ValueError("whole needs ids or search; it can't erase the whole store")
        return self


class RedactionRun(RedactionSelect):
    """Redact what a preview has shown."""

    reason: str = Field("", max_length=2_000, description="why; kept in the log")
    confirm_token: str | None = Field(None, max_length=64, description="from the preview")


class Place(BaseModel):
    """A string of an event with at least one match."""

    position: int
    event_type: str
    stream: str
    occurred_at: datetime
    field: str = Field(description="path of the string, such as content or attributes.examples[0]")
    before: str = Field(description="text around the first match")
    after: str = Field(description="the same text after the redaction")
    finds: int = Field(description="number of matches in the string")
    marked: list[tuple[int, int]] = Field(description="start and end of each match in ``before``")


class KeptPlace(BaseModel):
    """A place that keeps the text, and why."""

    where: str
    why: str


class RedactionPreview(BaseModel):
    """Preview of a redaction."""

    events: int = Field(description="number of events with matches")
    finds: int = Field(description="number of matches in events and in the spool")
    spooled: int = Field(0, description="spooled hook events with matches; they are redacted too")
    entities: int = Field(description="number of memories, decisions and others that these events belong to")
    copies: dict[str, int] = Field(description="number of derived copies, by kind")
    all_places: int = Field(description="number of strings with matches")
    places: list[Place] = Field(description="the first 100")
    kept: list[KeptPlace] = Field(description="places that keep the text, and why")
    confirm_token: str = Field(description="token for redacting exactly this")
    question: str = Field(description="question to confirm")


class RedactionDone(BaseModel):
    """Result of a redaction."""

    id: int | None = Field(description="event of the redaction; null if only whole items were erased")
    events: int = Field(description="number of redacted events")
    finds: int = Field(description="number of removed matches")
    spooled: int = Field(0, description="number of redacted events in the hook spool")
    searched_files: int = Field(description="number of files in the home folder that were searched for the text")
    searched_bytes: int = Field(description="size of these files")
    left: list[KeptPlace] = Field(description="places that still contain the text, and what to do about them")
    unproven: list[KeptPlace] = Field(
        default_factory=list, description="places of a database server that may contain the text and can't be searched"
    )
