"""Explain an invalid input in one sentence: the field, the problem, and what is accepted."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from memoryhub.core.errors import Invalid
from memoryhub.core.text import FILLED_LINE, NOT_BLANK, ONE_LINE

C = TypeVar("C", bound=BaseModel)

_MAX_SHOWN = 60
# Faults that are read, and fields that are named; a body of 2 MiB can have hundreds of thousands
_MAX_FAULTS = 100
_MAX_NAMES = 20
# pydantic's form of an enum member in a literal; callers know only its value.
_MEMBER = re.compile(r"<\w+\.\w+: ('[^']*')>")

# pydantic puts the choices of a union into a fault's path by their schema type; no field has such a name.
_CHOICE = re.compile(r"constrained-\w+|[a-z-]*\[.+\]|str|int|float|bool|datetime", re.DOTALL)
_SUFFIXES = ("_type", "_parsing", "_from_float", "_unicode", "_from_date_parsing", "_object_invalid", "_inner")

_Context = dict[str, Any]
_TYPE_NAMES = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
    "model": "an object",
    "model_attributes": "an object",
    "datetime": "an ISO 8601 time such as 2026-11-20T08:30:00Z",
}
_PROBLEMS: dict[str, Callable[[_Context], str]] = {
    "missing": lambda _: "is required",
    "extra_forbidden": lambda _: "is not known; leave it out",
    "invalid_key": lambda _: "must have texts as keys",
    "none_required": lambda _: "must be null",
    "union": lambda context: f"must be {context['expected']}",
    "literal_error": lambda context: "must be one of " + _MEMBER.sub(r"\1", context["expected"]),
    "enum": lambda context: f"must be one of {context['expected']}",
    "union_tag_invalid": lambda context: f"must have as {context['discriminator']} one of {context['expected_tags']}",
    "union_tag_not_found": lambda context: f"must have {context['discriminator']}",
    "string_too_long": lambda context: _at_most(context["max_length"], "character"),
    "string_too_short": lambda context: _at_least(context["min_length"], "character"),
    "string_pattern_mismatch": lambda context: _pattern_sentence(context["pattern"], context["input"]),
    "too_long": lambda context: _at_most(context["max_length"], *_units(context)),
    "too_short": lambda context: _at_least(context["min_length"], *_units(context)),
    "greater_than": lambda context: f"must be greater than {context['gt']}",
    "greater_than_equal": lambda context: f"must be at least {context['ge']}",
    "less_than": lambda context: f"must be less than {context['lt']}",
    "less_than_equal": lambda context: f"must be at most {context['le']}",
    "finite_number": lambda _: "must be a finite number",
    "int_parsing_size": lambda _: "must be a whole number of at most 4,300 digits",
    "json_invalid": lambda context: f"must be valid JSON: {context['error']}",
    "recursion_depth_exceeded": lambda _: "is nested too deeply",
    "value_error": lambda context: f"is not valid: {context['error']}",
    "assertion_error": lambda context: f"is not valid: {context['error']}",
}


def explain(error: ValidationError) -> str:
    """Return one sentence for the first invalid field, with the names of the others."""
    return explain_faults(error.errors(include_url=False))


def command_from(schema: type[C], options: dict[str, Any]) -> C:
    """Build a command from options or form data; missing and None values take the default."""
    fields = {name: options[name] for name in schema.model_fields if options.get(name) is not None}
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        raise Invalid(explain(error)) from error


def explain_faults(faults: Sequence[Any]) -> str:
    first, *further = _one_for_each_field(faults[:_MAX_FAULTS])
    if not first["loc"] and first["type"] == "value_error":
        sentence = str(first["ctx"]["error"])  # a rule about several fields names them itself
    else:
        sentence = f"{_field(first)} {_describe_problem(first)}"
    if value := _short_input(first):
        sentence += f", not {value}"
    names = dict.fromkeys(map(_field, further))
    names.pop(_field(first), None)
    listed = [*names][:_MAX_NAMES]
    if len(names) > _MAX_NAMES or len(faults) > _MAX_FAULTS:
        listed.append("and more")
    if listed:
        sentence += f"; also invalid: {', '.join(listed)}"
    return sentence


def _one_for_each_field(faults: Sequence[Any]) -> list[Any]:
    # For a union, pydantic lists one fault per choice.
    fields: dict[tuple[int | str, ...], list[Any]] = {}
    for fault in faults:
        place = tuple(part for part in fault["loc"] if isinstance(part, int) or not _CHOICE.fullmatch(part))
        fields.setdefault(place, []).append(fault)
    return [{**_meant_fault(choices), "loc": place} for place, choices in fields.items()]


def _meant_fault(faults: Sequence[Any]) -> Any:
    # The type of the input shows which choice was meant; if none fits, all choices are named.
    names = []
    for fault in faults:
        name = _type_name(fault["type"])
        if not name:
            return fault
        names.append(name)
    return {**faults[0], "type": "union", "ctx": {"expected": " or ".join(dict.fromkeys(names))}}


def _field(fault: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
    return repr(path.removeprefix(".")) if path else "the input"


def _describe_problem(fault: Any) -> str:
    kind: str = fault["type"]
    if kind in _PROBLEMS:
        return _PROBLEMS[kind]({**fault.get("ctx", {}), "input": fault.get("input")})
    message: str = fault["msg"]
    return f"is not valid: {message[:1].lower()}{message[1:]}"


def _type_name(kind: str) -> str | None:
    if kind in _PROBLEMS:
        return None
    for suffix in _SUFFIXES:
        name = kind.removesuffix(suffix)
        if name != kind and name in _TYPE_NAMES:
            return _TYPE_NAMES[name]
    return None


def _units(context: _Context) -> tuple[str, str]:
    if isinstance(context["input"], str):
        return "character", "characters"
    return "entry", "entries"


def _pattern_sentence(pattern: str, value: object) -> str:
    if pattern == NOT_BLANK or (pattern == FILLED_LINE and not str(value).strip()):
        return "must not be empty"
    if pattern in (ONE_LINE, FILLED_LINE):
        return "must be one line, without a line break"
    return f"must match {pattern}"


def _at_least(count: int, one: str, many: str = "") -> str:
    return "must not be empty" if count == 1 else f"must have at least {_amount(count, one, many)}"


def _at_most(count: int, one: str, many: str = "") -> str:
    return f"must have at most {_amount(count, one, many)}"


def _amount(count: int, one: str, many: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {many or one + 's'}"


def _short_input(fault: Any) -> str:
    value = fault.get("input")
    if fault["type"] in ("missing", "extra_forbidden", "value_error", "assertion_error"):
        return ""
    if not isinstance(value, str | int | float | bool) or value == "":
        return ""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else ""
