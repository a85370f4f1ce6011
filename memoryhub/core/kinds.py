"""The kinds of memory: their attributes, columns and texts. To add one, declare it here (decision 39)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from types import MappingProxyType
from typing import Annotated, Any

from django.core.exceptions import ImproperlyConfigured
from pydantic import BaseModel, Field, JsonValue, StringConstraints, field_validator
from pydantic.fields import FieldInfo

from memoryhub.core.schemas import UNLISTED, Moment, Payload, unlisted

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
    # Whether it lists files and folders; a commit that touches one makes the memory stale.
    governs: bool = False


# One attribute with its defaults filled in.
@dataclass(frozen=True, slots=True)
class Shape:
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


def shapes_of(model: type[BaseModel]) -> dict[str, Shape]:
    schema = model.model_json_schema()
    parts, described = schema.get("$defs", {}), schema.get("properties", {})
    return {name: _shape(name, field, described[name], parts) for name, field in model.model_fields.items()}


def _shape(name: str, field: FieldInfo, described: Mapping[str, Any], parts: Mapping[str, Any]) -> Shape:
    first = next(iter(described.get("anyOf", ())), described)
    schema_type = parts.get(first.get("$ref", "").rpartition("/")[2], first)
    value_type = "choice" if "enum" in schema_type else schema_type.get("format") or schema_type.get("type", "object")
    attribute = attribute_of(field)
    return Shape(
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
    if value_type == "string":
        return Show.FACT if described.get("maxLength", _LONGEST_FACT + 1) <= _LONGEST_FACT else Show.PROSE
    if value_type == "array":
        return Show.NAMES if described["items"].get("type") == "string" else Show.JSON
    return Show.JSON if value_type == "object" else Show.FACT


SHARED_COLUMNS = frozenset({"author", "updated"})
_NAME = re.compile(r"[a-z]{1,16}")
# Names of tools, models or filters of other entities
_TAKEN = frozenset(
    "memory decision commit session project org turn event iteration tag relation conflict review vector".split()
)
# Tool arguments and form fields that appear next to the attributes of a kind with unique names
_ARGUMENTS = frozenset(
    "id title name content description category type tags source links scope scope_id inherit include_deleted author "
    "idempotency_key if_exists base_version change_reason reason topic_key format session_id".split()
)


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
    PLAIN = "plain"
    CODE = "code"


# Names in the registry tools (``<kind>_add`` and others) of a kind with unique names.
@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    noun: str
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
    # Columns of the list after number, title and type: attributes, and any of ``SHARED_COLUMNS``.
    columns: tuple[str, ...]
    # Attributes that the list filters by: ``valid_until``, booleans and choices.
    filters: tuple[str, ...] = ()
    # How the registry, and then the admin's list, sorts entries: ``name``, or ``priority`` descending.
    order: str = "name"
    # Heading of the side panel; required if an attribute is shown there.
    panel_title: str = ""
    # None for a kind without unique names, which has no registry tools.
    entry: Entry | None
    # None lists the kind among the facts.
    pack: PackSection | None

    @cached_property
    def counted(self) -> tuple[str, str]:
        return self.nouns if all(self.nouns) else (self.label.lower(), self.plural.lower())

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        return shapes_of(self.attributes)

    @cached_property
    def indexed(self) -> tuple[str, ...]:
        return tuple(name for name in INDEXED if name in self.shapes)


def _problems(kind: Kind) -> Iterator[str]:
    if not _NAME.fullmatch(kind.name) or kind.name in _TAKEN:
        yield f"the name must be 1 to 16 of the letters a to z, and none of {', '.join(sorted(_TAKEN))}"
    if kind.name in _kinds:
        yield "it is declared twice"
    for name in ("label", "plural", "default_type", "text_label", "text_help", "add_label", "empty_text"):
        if not getattr(kind, name):
            yield f"it declares no {name}"
    if kind.types and kind.default_type not in kind.types:
        yield f"default_type {kind.default_type!r} is not one of its types"
    for shape in kind.shapes.values():
        yield from (f"attribute {shape.name!r} {problem}" for problem in _attribute_problems(kind, shape))
    yield from _list_problems(kind)


def _attribute_problems(kind: Kind, shape: Shape) -> Iterator[str]:
    field = kind.attributes.model_fields[shape.name]
    if field.is_required():
        yield "has no default"
    if not field.description:
        yield "has no description for its tools and its form"
    if kind.entry and shape.name in _ARGUMENTS:
        yield "has the name of an argument of every tool"
    if INDEXED.get(shape.name, shape.type) != shape.type:
        yield f"has type {shape.type}, but the column of that name has type {INDEXED[shape.name]}"
    if shape.attribute.governs and shape.show is not Show.NAMES:
        yield "governs files, so it must be a list of strings"
    if shape.show is Show.BAR and not shape.highest:
        yield "is shown as a bar, so its schema must have a maximum"


def _list_problems(kind: Kind) -> Iterator[str]:
    for name in kind.columns:
        if name not in kind.shapes and name not in SHARED_COLUMNS:
            yield f"column {name!r} is neither an attribute nor one of {', '.join(sorted(SHARED_COLUMNS))}"
    for name in kind.filters:
        shape = kind.shapes.get(name)
        if shape is None or (name != "valid_until" and shape.type not in ("boolean", "choice")):
            yield f"filter {name!r} is not valid_until, a boolean attribute or a choice"
    if kind.order not in ("name", "priority") or (kind.order == "priority" and "priority" not in kind.shapes):
        yield f"order {kind.order!r} is neither name nor priority with an attribute of that name"
    in_panel = [shape.name for shape in kind.shapes.values() if shape.in_panel]
    if in_panel and not kind.panel_title:
        yield f"it declares no panel_title for {', '.join(in_panel)}"


_kinds: dict[str, Kind] = {}


def define_kind(kind: Kind) -> Kind:
    """Register a kind; raise ImproperlyConfigured if its declaration is incomplete or contradictory."""
    problem = next(_problems(kind), "")
    if not problem and all_kinds.cache_info().currsize:
        problem = "it is declared after memoryhub.core.kinds was imported"
    if problem:
        raise ImproperlyConfigured(f"kind {kind.name!r}: {problem}")
    _kinds[kind.name] = kind
    return kind


@cache
def all_kinds() -> Mapping[str, Kind]:
    # Enums and schemas are made from the kinds at import, so no kind can be defined after this call.
    return MappingProxyType(_kinds)


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
