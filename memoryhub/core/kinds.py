"""The kinds of memory: their attributes, columns and texts. To add one, declare it here (decision 39)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, JsonValue, StringConstraints, field_validator
from pydantic.fields import FieldInfo

from memoryhub.core.schemas import UNLISTED, Line, Moment, Payload, unlisted

# Searches filter and rank by these, so each has a column, and the same meaning in every kind.
INDEXED: Mapping[str, str] = {"priority": "integer", "confidence": "number", "valid_until": "date-time"}
_LONGEST_FACT = 500


# How a memory's page shows an attribute.
class Show(StrEnum):
    # In the side panel: a number, a short text, a time, yes or no.
    FACT = "fact"
    # In the side panel: a number with a bar; the schema has the maximum.
    BAR = "bar"
    PROSE = "prose"
    # A list of identifiers.
    NAMES = "names"
    # A list with each entry as a code block.
    BLOCKS = "blocks"
    # The lists ``good`` and ``bad`` of an object, side by side.
    EXAMPLES = "examples"
    # A JSON schema as a table of its properties.
    ARGUMENTS = "arguments"
    JSON = "json"


# What a schema's field declares beside its type: ``Annotated[int, Attribute(show=Show.BAR)]``.
@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    # Default: by the field's type.
    show: Show | None = None
    # Default: the field's name.
    heading: str = ""
    # Shown beside the form field. Default: the field's ``description``.
    help: str = ""
    # Whether searches look in it.
    searched: bool = False
    # Whether it is a list of files and folders; a commit that touches one makes the memory stale.
    lists_files: bool = False


# One attribute with its defaults filled in.
@dataclass(frozen=True, slots=True)
class AttributeShape:
    name: str
    attribute: Attribute
    show: Show
    # ``integer``, ``number``, ``boolean``, ``date-time``, ``choice``, ``string``, ``array`` or ``object``.
    type: str
    choices: tuple[str, ...]
    # The fields of an object.
    parts: tuple[str, ...]
    lowest: float
    # 0 if the number has no maximum.
    highest: float
    # Whether tool descriptions leave it out.
    is_unlisted: bool
    default: Any

    @property
    def heading(self) -> str:
        return self.attribute.heading or self.name.replace("_", " ").capitalize()

    @property
    def in_panel(self) -> bool:
        return self.show in (Show.FACT, Show.BAR)

    @property
    def in_code(self) -> bool:
        return self.show in (Show.BLOCKS, Show.EXAMPLES, Show.ARGUMENTS, Show.JSON)


def attribute_of(field: FieldInfo) -> Attribute:
    return next((item for item in field.metadata if isinstance(item, Attribute)), Attribute())


def _shape(name: str, field: FieldInfo, described: Mapping[str, Any], parts: Mapping[str, Any]) -> AttributeShape:
    first = next(iter(described.get("anyOf", ())), described)
    schema_type = parts.get(first.get("$ref", "").rpartition("/")[2], first)
    value_type = schema_type.get("format") or schema_type.get("type", "object")
    if "enum" in schema_type:
        value_type = "choice"
    attribute = attribute_of(field)
    return AttributeShape(
        name=name,
        attribute=attribute,
        show=attribute.show or _default_show(value_type, schema_type),
        type=value_type,
        choices=tuple(schema_type.get("enum", ())),
        parts=tuple(schema_type.get("properties", ())),
        lowest=schema_type.get("minimum", 0),
        highest=schema_type.get("maximum", 0),
        is_unlisted=bool(described.get(UNLISTED)),
        default=field.get_default(call_default_factory=True),
    )


def _default_show(value_type: str, described: Mapping[str, Any]) -> Show:
    if value_type == "string" and described.get("maxLength", _LONGEST_FACT + 1) > _LONGEST_FACT:
        return Show.PROSE
    if value_type == "array" and described["items"].get("type") == "string":
        return Show.NAMES
    return Show.JSON if value_type in ("array", "object") else Show.FACT


# The colour of a kind's badge: class ``tone-<value>`` in the style sheet.
class Tone(StrEnum):
    GREY = "grey"
    ACCENT = "accent"
    AMBER = "amber"
    BLUE = "blue"
    GREEN = "green"
    TEAL = "teal"
    VIOLET = "violet"


class Rendering(StrEnum):
    MARKDOWN = "markdown"
    CODE = "code"


# Words of the tools (``<kind>_add`` and others) of a kind whose titles are unique.
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNames:
    nouns: tuple[str, str]
    # The argument for the title.
    name: str = "name"
    # The argument for the text.
    text: str = "content"
    # Whether the tools list the argument ``source``; all accept it.
    lists_source: bool = False


# A section of the context pack for one kind.
@dataclass(frozen=True, slots=True, kw_only=True)
class PackSection:
    name: str
    title: str
    # Position among the sections: the last session is 10, facts are 40, conflicts 50.
    order: int
    # Share of the token budget, 0 to 1.
    share: float
    # Maximum number of characters of each memory's text.
    text_length: int


@dataclass(frozen=True, kw_only=True)
class Kind:
    # In events, tools and URLs.
    name: str
    label: str
    plural: str
    # Singular and plural for counts; default: label and plural in lower case.
    nouns: tuple[str, str] = ("", "")
    # What a line of an answer calls a memory of the kind; default: the kind's name (decision 101).
    word: str = ""
    # The plural that queries accept beside the name; default: the name with an s.
    plural_name: str = ""
    # The schema of the fields that only this kind has. Every field has a default.
    attributes: type[Payload]
    # The accepted types; if empty, any word.
    types: tuple[str, ...]
    default_type: str
    type_label: str = "Category"
    tone: Tone
    text_label: str
    text_help: str
    rendering: Rendering = Rendering.MARKDOWN
    # The button that opens the form for a new one.
    add_label: str
    # The text of an empty list.
    empty_text: str
    # Columns of the list after number, title and type: attributes, ``author`` and ``updated``.
    columns: tuple[str, ...]
    # Attributes that the list filters by: ``valid_until``, booleans and choices.
    filters: tuple[str, ...] = ()
    # How the tools and the admin's list sort memories of the kind: ``name``, or ``priority`` descending.
    order: str = "name"
    # Heading of the side panel; required if an attribute is shown there.
    panel_title: str = ""
    # None for a kind whose titles are not unique: it has no tools.
    tools: ToolNames | None
    # None lists the kind among the facts.
    pack: PackSection | None

    @cached_property
    def counted(self) -> tuple[str, str]:
        return self.nouns if all(self.nouns) else (self.label.lower(), self.plural.lower())

    @cached_property
    def accepted_plural(self) -> str:
        return self.plural_name or f"{self.name}s"

    @cached_property
    def shapes(self) -> Mapping[str, AttributeShape]:
        schema = self.attributes.model_json_schema()
        parts = schema.get("$defs", {})
        described = schema.get("properties", {})
        fields = self.attributes.model_fields.items()
        return {name: _shape(name, field, described[name], parts) for name, field in fields}

    @cached_property
    def indexed(self) -> tuple[str, ...]:
        return tuple(name for name in INDEXED if name in self.shapes)


Text = Annotated[str, StringConstraints(max_length=10_000)]
# Every kind has it. Not parsed here: a redaction may have changed a stored one.
CheckLine = Annotated[
    Line,
    StringConstraints(max_length=500),
    Attribute(
        show=Show.PROSE,
        help="“`make test` exits 0” or “pyproject.toml matches `asyncpg`”. A command waits for a permission.",
    ),
    Field(description="proves it: `make test` exits 0, or FILE matches REGEX", json_schema_extra=unlisted),
]


class ObservationAttributes(Payload):
    related_chunks: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=200)]], Attribute(heading="Related code")
    ] = Field(
        default_factory=list, max_length=64, description="ids of related pieces of code", json_schema_extra=unlisted
    )
    check: CheckLine = ""


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
    check: CheckLine = ""


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
    check: CheckLine = ""

    @field_validator("parameters")
    @classmethod
    def _is_json_schema(cls, parameters: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if not parameters:
            return parameters
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for

        try:
            validator_for(parameters).check_schema(parameters)
        except SchemaError as error:
            path = "/".join(map(str, error.absolute_path))
            place = f" at {path}" if path else ""
            raise ValueError(f"is not a valid JSON schema{place}: {error.message[:200]}") from error
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
    check: CheckLine = ""


class FailureAttributes(Payload):
    error: Annotated[Text, Attribute(searched=True, help="As it was printed; searches find it again.")] = Field(
        "", description="text of the error, as printed"
    )
    command: Annotated[str, StringConstraints(max_length=2_000), Attribute(heading="What failed", searched=True)] = (
        Field("", description="the command that failed")
    )
    cause: Annotated[Text, Attribute(heading="Why it failed", searched=True)] = Field("", description="why it failed")
    instead: Annotated[Text, Attribute(heading="What was done instead", searched=True)] = Field(
        "", description="what worked instead"
    )
    check: CheckLine = ""


OBSERVATION = Kind(
    name="observation",
    label="Memory",
    plural="Plain memories",
    nouns=("memory", "memories"),
    word="memory",
    attributes=ObservationAttributes,
    types=("note", "decision", "task", "reference", "conversation"),
    default_type="note",
    type_label="Type",
    tone=Tone.GREY,
    text_label="Text",
    text_help="Markdown or plain text.",
    add_label="Write a memory",
    empty_text="What agents and people write down without another kind appears here.",
    columns=("author", "updated"),
    tools=None,
    pack=None,
)

GUIDELINE = Kind(
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
    tools=ToolNames(nouns=("guideline", "guidelines")),
    pack=PackSection(name="guidelines", title="Guidelines, by priority", order=20, share=0.25, text_length=400),
)

TOOL = Kind(
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
    empty_text="Describe a command, a function or a service that agents may use: its arguments, and when to use it.",
    columns=("author", "updated"),
    tools=ToolNames(nouns=("tool", "tools"), text="description"),
    pack=None,
)

KNOWLEDGE = Kind(
    name="knowledge",
    label="Fact",
    plural="Facts",
    word="memory",
    plural_name="knowledge",
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
    tools=ToolNames(nouns=("fact", "facts"), name="title", lists_source=True),
    pack=None,
)

FAILURE = Kind(
    name="failure",
    label="Failure",
    plural="Failures",
    attributes=FailureAttributes,
    types=(),
    default_type="attempt",
    tone=Tone.AMBER,
    text_label="What was tried",
    text_help="What was tried, and what happened. Markdown or plain text.",
    add_label="Write down a failure",
    empty_text="Write down what was tried and failed, why, and what was done instead, so that nobody tries it again.",
    columns=("author", "updated"),
    tools=None,
    pack=None,
)


# Used when a writer names no kind. Texts and badges show only the type of such memories.
DEFAULT_KIND = OBSERVATION.name
# Enums and schemas are made from it when their modules are imported
KINDS: dict[str, Kind] = {kind.name: kind for kind in (OBSERVATION, GUIDELINE, TOOL, KNOWLEDGE, FAILURE)}


def kind_members() -> dict[str, str]:
    """Return the kinds as enum members: ``{"GUIDELINE": "guideline", …}``."""
    return {name.upper(): name for name in KINDS}


def attribute_outlines() -> dict[str, str]:
    """Return each kind's attributes on one line: ``{"guideline": "priority 0-100, rationale, …"}``."""
    outlines = {}
    for kind in KINDS.values():
        listed = []
        for shape in kind.shapes.values():
            if shape.is_unlisted:
                continue
            outline = shape.name
            if shape.parts:
                outline += f" {{{', '.join(shape.parts)}}}"
            elif shape.highest:
                outline += f" {shape.lowest:g}-{shape.highest:g}"
            elif shape.show is Show.ARGUMENTS:
                outline += " (JSON schema)"
            listed.append(outline)
        if listed:
            outlines[kind.name] = ", ".join(listed)
    return outlines


# A section of a file says so by its title
_UNNAMED_TYPES = ("", "reference")


def word_for(kind: str) -> str:
    """Return what texts call an entry of a kind: ``memory``, ``guideline``; other names as they are."""
    return (KINDS[kind].word or kind) if kind in KINDS else kind


def type_name(kind: str, type_of: str) -> str:
    """Return what a line calls a memory: ``memory``, ``guideline``, ``tool/cli``. A default type is left out.

    Without a kind, as for a decision, it is the type.
    """
    if kind not in KINDS:
        return type_of
    word = word_for(kind)
    return word if type_of in (*_UNNAMED_TYPES, KINDS[kind].default_type) else f"{word}/{type_of}"
