"""The kinds of memory. To add one, declare it here; docs/internals/new-kind.md has an example (decision 39)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue, StringConstraints, field_validator

from memoryhub.core.kinds.attributes import Attribute, Shape, Show
from memoryhub.core.kinds.definition import Entry, Kind, PackSection, Tone, all_kinds, define_kind
from memoryhub.core.schemas import Moment, Payload, unlisted

Text = Annotated[str, StringConstraints(max_length=10_000)]


class ObservationAttributes(Payload):
    related_chunks: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=200)]],
        Attribute(heading="Related code"),
    ] = Field(
        default_factory=list,
        max_length=64,
        description="ids of related pieces of code",
        json_schema_extra=unlisted,
    )


class Examples(Payload):
    good: Annotated[list[Text], Attribute(help="Do it like this.")] = Field(default_factory=list, max_length=20)
    bad: Annotated[list[Text], Attribute(help="Don't do it like this.")] = Field(default_factory=list, max_length=20)


class GuidelineAttributes(Payload):
    priority: Annotated[int, Attribute(show=Show.BAR)] = Field(
        50, ge=0, le=100, description="0 to 100, higher is more important"
    )
    rationale: Annotated[Text, Attribute(heading="Why", searched=True)] = Field("", description="why it exists")
    examples: Annotated[Examples, Attribute(show=Show.EXAMPLES)] = Field(
        default_factory=Examples, description="{good: [...], bad: [...]}"
    )


class ToolAttributes(Payload):
    parameters: Annotated[
        dict[str, JsonValue], Attribute(show=Show.ARGUMENTS, help="Its arguments, as a JSON schema.")
    ] = Field(default_factory=dict, description="a JSON schema")
    examples: Annotated[list[JsonValue], Attribute(show=Show.BLOCKS, help="Example calls, as JSON or text.")] = Field(
        default_factory=list, max_length=20, description="example calls"
    )
    constraints: Annotated[Text, Attribute(heading="When and how to use it", searched=True)] = Field(
        "", description="when and how to use it"
    )

    @field_validator("parameters")
    @classmethod
    def _is_json_schema(cls, parameters: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if parameters:
            _check_json_schema(parameters)
        return parameters


class KnowledgeAttributes(Payload):
    confidence: Annotated[float, Attribute(show=Show.BAR, help="How certain it is, 0 to 1.")] = Field(
        1.0, ge=0.0, le=1.0, description="0 to 1"
    )
    valid_until: Annotated[
        Moment | None,
        Attribute(
            help="In your time zone. After this time the entry is marked expired; leave empty if it never expires."
        ),
    ] = Field(None, description="ISO time after which it expires")


OBSERVATION = define_kind(
    Kind(
        name="observation",
        label="Observation",
        plural="Observations",
        attributes=ObservationAttributes,
        types=("note", "decision", "task", "reference", "conversation"),
        default_type="note",
        type_label="Type",
        tone=Tone.GREY,
        text_label="Text",
        text_help="Markdown or plain text.",
        add_label="Write an observation",
        empty_text="Notes, tasks, references and conversations that agents record while they work appear here.",
        columns=("author", "updated"),
        entry=None,
        pack=None,
    )
)

GUIDELINE = define_kind(
    Kind(
        name="guideline",
        label="Guideline",
        plural="Guidelines",
        attributes=GuidelineAttributes,
        types=(),
        default_type="general",
        tone=Tone.ACCENT,
        text_label="Rule",
        text_help="What to do, and where it holds. Markdown or plain text.",
        add_label="Write a guideline",
        empty_text="Write down how things are done in this project; agents get the most important guidelines when a "
        "session starts.",
        columns=("priority", "updated"),
        order="priority",
        panel_title="Weight",
        entry=Entry(noun="guideline"),
        pack=PackSection(name="guidelines", title="Guidelines, by priority", order=20, share=0.25, text_length=400),
    )
)

TOOL = define_kind(
    Kind(
        name="tool",
        label="Tool",
        plural="Tools",
        attributes=ToolAttributes,
        types=("mcp", "cli", "function", "api"),
        default_type="function",
        tone=Tone.TEAL,
        text_label="Description",
        text_help="What it does and what it returns. Markdown or plain text.",
        add_label="Describe a tool",
        empty_text="Describe a command, a function or a service that agents may use: its arguments, and when to use "
        "it.",
        columns=("author", "updated"),
        entry=Entry(noun="tool", text="description"),
        pack=None,
    )
)

KNOWLEDGE = define_kind(
    Kind(
        name="knowledge",
        label="Knowledge",
        plural="Knowledge",
        nouns=("piece of knowledge", "pieces of knowledge"),
        attributes=KnowledgeAttributes,
        types=("decision", "fact", "context", "reference"),
        default_type="fact",
        tone=Tone.BLUE,
        text_label="Text",
        text_help="The fact itself. Markdown or plain text.",
        add_label="Write down a fact",
        empty_text="Write down facts, decisions, the project's context and where to look things up.",
        columns=("confidence", "valid_until", "updated"),
        filters=("valid_until",),
        panel_title="Confidence",
        entry=Entry(noun="knowledge entry", name="title", lists_source=True),
        pack=None,
    )
)


def _check_json_schema(schema: dict[str, JsonValue]) -> None:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        at = "/".join(str(part) for part in error.absolute_path)
        raise ValueError(f"is not a valid JSON schema{f' at {at}' if at else ''}: {error.message[:200]}") from error


# Used when a writer names no kind. Texts and badges show only the type of such memories.
DEFAULT_KIND = OBSERVATION.name
KINDS = all_kinds()


def kind_members() -> dict[str, str]:
    """Return the kinds as enum members: ``{"GUIDELINE": "guideline", …}``."""
    return {name.upper(): name for name in KINDS}


def attribute_outlines() -> dict[str, str]:
    """Return each kind's attributes on one line: ``{"guideline": "priority 0-100, rationale, …"}``."""
    outlines = {kind.name: ", ".join(filter(None, map(_outline, kind.shapes.values()))) for kind in KINDS.values()}
    return {name: outline for name, outline in outlines.items() if outline}


def _outline(shape: Shape) -> str:
    if shape.is_unlisted:
        return ""
    if shape.parts:
        return f"{shape.name} {{{', '.join(shape.parts)}}}"
    if shape.highest:
        return f"{shape.name} {shape.lowest:g}-{shape.highest:g}"
    return f"{shape.name} (JSON schema)" if shape.show is Show.ARGUMENTS else shape.name


def type_name(kind: str, type_of: str) -> str:
    """Return a memory's kind and type: ``knowledge/fact``; for the default kind, only the type."""
    return type_of if kind in ("", DEFAULT_KIND) else f"{kind}/{type_of}"
