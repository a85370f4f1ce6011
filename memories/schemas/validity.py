"""Input and output about the code that entries are about, and what is known against them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from memories.models import AmendmentKind
from memoryhub.core.schemas import Command, EntityId, FilledLine

MAX_ANCHORS = 8
# Description of the field
ANCHORS = "code it is about: src/a.py:10-24; default: as its text names"

# ``src/auth.py``, ``src/auth.py:10-24`` or ``src/auth.py#Session.renew``, from the top of the working tree
AnchorName = Annotated[FilledLine, Field(max_length=1_200)]
AnchorNames = Annotated[list[AnchorName], Field(max_length=MAX_ANCHORS)]


class AnchorsChange(Command):
    """Replace the anchors of a memory or decision."""

    id: EntityId = Field(description="of the memory or decision")
    anchors: AnchorNames = Field(description="code that it is about, such as src/auth.py:10-24; [] for none")
    reason: str = Field("", max_length=1_000, description="why")


class AnchorView(BaseModel):
    """A part of the code that an entry is about, compared with the caller's working tree."""

    # ``src/auth.py:10-24``
    name: str
    # fresh, moved, changed or gone; empty without a working tree
    state: str = ""
    # Where it is now, if it moved
    now_at: str = ""
    # text, session, commit or person
    made_from: str


class AnchorsResult(BaseModel):
    """Result of changing anchors."""

    id: int
    is_changed: bool
    anchors: list[AnchorView]


class MarkView(BaseModel):
    """Something that is known against an entry, compared with the caller's working tree."""

    # changed, gone, branch, amended, contradicted, failed or origin
    kind: str
    text: str


class AmendedEntry(BaseModel):
    """An earlier entry that a new one seems to amend or contradict."""

    id: int
    title: str
    # amends or contradicts
    kind: AmendmentKind
    # Explicit words of the same author
    certain: bool
