"""A kind for tests only, and the settings of the process that has it. docs/internals/new-kind.md shows it."""

# ruff: noqa: E402, F403
from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from memoryhub.core.kinds.attributes import Attribute, Show
from memoryhub.core.kinds.definition import Entry, Kind, PackSection, Rendering, Tone, define_kind
from memoryhub.core.schemas import Payload

Line = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class RunbookAttributes(Payload):
    """What a runbook has besides its text."""

    severity: Literal["low", "high"] = Field("low", description="how bad it is when this is needed")
    rehearsed: bool = Field(False, description="someone has tried it")
    minutes: Annotated[int, Attribute(show=Show.BAR)] = Field(10, ge=0, le=240, description="how long it takes")
    warnings: Annotated[str, StringConstraints(max_length=5_000), Attribute(searched=True)] = Field(
        "", description="what can go wrong"
    )
    files: Annotated[list[Line], Attribute(heading="Files that it is about", governs=True)] = Field(
        default_factory=list, max_length=50, description="files and folders; a commit that touches one makes it stale"
    )


RUNBOOK = define_kind(
    Kind(
        name="runbook",
        label="Runbook",
        plural="Runbooks",
        attributes=RunbookAttributes,
        types=("restore", "deploy", "incident"),
        default_type="incident",
        tone=Tone.AMBER,
        text_label="Steps",
        text_help="One command a line, as you would type it.",
        rendering=Rendering.CODE,
        add_label="Write a runbook",
        empty_text="Write down what to do when something breaks, one step a line.",
        columns=("severity", "rehearsed", "minutes", "updated"),
        filters=("severity", "rehearsed"),
        panel_title="When it is needed",
        entry=Entry(noun="runbook", text="steps"),
        pack=PackSection(name="runbooks", title="Runbooks", order=30, share=0.1, text_length=200),
    )
)

# The settings: those of the web server.
from memoryhub.settings import *
