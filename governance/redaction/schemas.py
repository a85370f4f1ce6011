"""What is to be taken out, and what a look at it shows; the same at every door."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints, model_validator

from memoryhub.core.schemas import Command, EntityId

Label = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]


_SPACE = re.compile(r"\s+")


class RedactionSelect(Command):
    """What to look for, and where.

    One of ``text``, ``pattern`` and ``rules`` says what is taken out of the texts; with ``whole``, everything that
    ``ids`` or ``search`` names is erased instead.
    """

    text: str | None = Field(None, min_length=2, max_length=100_000, description="this very text")
    pattern: str | None = Field(None, min_length=1, max_length=1_000, description="an RE2 regular expression")
    rules: bool = Field(False, description="whatever the rules for secrets find today")
    ignore_case: bool = Field(False, description="of text and pattern")
    whole: bool = Field(False, description="erase what is selected altogether")
    ids: list[EntityId] = Field(default_factory=list, max_length=1_000, description="only in these things")
    search: str | None = Field(None, min_length=1, max_length=2_000, description="only in what this question finds")
    event_types: list[str] = Field(default_factory=list, max_length=50, description="only in events of these types")
    label: Label = Field("removed", description="what stands in its place: [REDACTED:label]")

    def texts(self) -> list[str]:
        """Return the text as it is, and on one line, as a context pack keeps a question; the longer one first."""
        if self.text is None:
            return []
        on_one_line = _SPACE.sub(" ", self.text)
        texts = {self.text, on_one_line} if len(on_one_line.strip()) > 1 else {self.text}
        return sorted(texts, key=len, reverse=True)

    @property
    def narrowed(self) -> bool:
        """Whether only some events are meant."""
        return bool(self.ids or self.search or self.event_types)

    @model_validator(mode="after")
    def _one_way(self) -> RedactionSelect:
        ways = [name for name in ("text", "pattern", "rules", "whole") if getattr(self, name)]
        if len(ways) != 1:
            raise ValueError("say what to take out by exactly one of text, pattern, rules and whole")
        if self.whole and not (self.ids or self.search):
            raise ValueError("whole needs ids or search; it never means the whole store")
        return self


class RedactionRun(RedactionSelect):
    """Take it out, once it was looked at."""

    reason: str = Field("", max_length=2_000, description="why; kept in the log")
    confirm_token: str | None = Field(None, max_length=64, description="of the preview")


class Place(BaseModel):
    """One string of one event in which something is to be taken out."""

    position: int
    event_type: str
    stream: str
    occurred_at: datetime
    field: str = Field(description="such as content, or attributes.examples[0]")
    before: str = Field(description="the text around the first find")
    after: str = Field(description="the same, as it would be kept")
    finds: int = Field(description="in this string")
    marked: list[tuple[int, int]] = Field(description="where in ``before`` each find stands: start, end")


class KeptPlace(BaseModel):
    """A place that still holds the text, and why."""

    where: str
    why: str


class RedactionPreview(BaseModel):
    """What would be done."""

    events: int = Field(description="in which something is found")
    finds: int = Field(description="in all of them, and in the spool")
    spooled: int = Field(0, description="events of hooks that wait in the spool and hold it; they are cleaned too")
    entities: int = Field(description="things that these events are about")
    copies: dict[str, int] = Field(description="what was made of these events, by what it is, and how many")
    all_places: int = Field(description="strings that hold a find")
    places: list[Place] = Field(description="the first 100 of them")
    kept: list[KeptPlace] = Field(description="what stays, and why")
    confirm_token: str = Field(description="of exactly this; the redaction wants it")
    question: str = Field(description="the sentence to confirm")

    @property
    def more_places(self) -> bool:
        """Whether there are more than are shown."""
        return self.all_places > len(self.places)


class RedactionDone(BaseModel):
    """What was done."""

    id: int | None = Field(description="the event that tells of it; None where only whole things were erased")
    events: int = Field(description="from which something was taken out")
    finds: int = Field(description="that were taken out")
    spooled: int = Field(0, description="events of hooks that waited in the spool and were cleaned")
    searched_files: int = Field(description="of the home folder, read byte by byte for what was taken out")
    searched_bytes: int = Field(description="of these files")
    left: list[KeptPlace] = Field(description="files that hold it still, with what to do about them")


def shown(model: BaseModel) -> dict[str, Any]:
    """Return an answer as JSON data."""
    return model.model_dump(mode="json")
