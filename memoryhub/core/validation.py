"""What is wrong with an input, in one sentence: the field, the problem, and what is accepted instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

_MAX_SHOWN = 60
_MEMBER = re.compile(r"<\w+\.\w+: ('[^']*')>")
"""How pydantic shows a member of an enumeration that a literal names; callers know its value."""

_Context = dict[str, Any]
_TYPE_NAMES = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "dict": "an object",
    "model": "an object",
    "model_attributes": "an object",
    "datetime": "an ISO 8601 time such as 2026-11-20T08:30:00Z",
    "datetime_from_date": "an ISO 8601 time such as 2026-11-20T08:30:00Z",
    "timezone": "a time with a zone",
    "date": "a date such as 2026-11-20",
}
_PROBLEMS: dict[str, Callable[[_Context], str]] = {
    "missing": lambda _: "is required",
    "extra_forbidden": lambda _: "is not known; leave it out",
    "literal_error": lambda context: "must be one of " + _MEMBER.sub(r"\1", context["expected"]),
    "enum": lambda context: f"must be one of {context['expected']}",
    "string_too_long": lambda context: f"must have at most {context['max_length']} characters",
    "string_too_short": lambda context: _at_least(context["min_length"], "character"),
    "too_long": lambda context: f"must have at most {context['max_length']} entries",
    "too_short": lambda context: _at_least(context["min_length"], "entry", "entries"),
    "greater_than": lambda context: f"must be greater than {context['gt']}",
    "greater_than_equal": lambda context: f"must be at least {context['ge']}",
    "less_than": lambda context: f"must be less than {context['lt']}",
    "less_than_equal": lambda context: f"must be at most {context['le']}",
    "multiple_of": lambda context: f"must be a multiple of {context['multiple_of']}",
    "string_pattern_mismatch": lambda context: f"must match {context['pattern']}",
    "value_error": lambda context: f"is not valid: {context['error']}",
    "assertion_error": lambda context: f"is not valid: {context['error']}",
    "finite_number": lambda _: "must be a finite number",
}


def explain(error: ValidationError) -> str:
    """Return one sentence that names the first field at fault, what is wrong with it and what is accepted.

    Further fields at fault are named behind it.
    """
    return explain_faults(error.errors(include_url=False))


def explain_faults(faults: Sequence[Any]) -> str:
    """Return the sentence of ``explain`` for faults as pydantic lists them."""
    first, *others = faults
    sentence = _sentence(first)
    shown = _shown(first)
    if shown:
        sentence += f", not {shown}"
    names = list(dict.fromkeys(_field(fault) for fault in others if _field(fault) != _field(first)))
    return sentence + (f"; wrong too: {', '.join(names)}" if names else "")


def _sentence(fault: Any) -> str:
    """Return what is wrong; a rule on fields together names them itself."""
    if not fault["loc"] and fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    return f"{_field(fault)} {_problem(fault)}"


def _field(fault: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
    return repr(path.removeprefix(".")) if path else "the input"


def _problem(fault: Any) -> str:
    kind: str = fault["type"]
    if kind in _PROBLEMS:
        return _PROBLEMS[kind](fault.get("ctx", {}))
    for suffix in ("_type", "_parsing", "_from_float", "_parsing_size", "_inner"):
        name = kind.removesuffix(suffix)
        if name != kind and name in _TYPE_NAMES:
            return f"must be {_TYPE_NAMES[name]}"
    message: str = fault["msg"]
    return f"is not valid: {message[:1].lower()}{message[1:]}"


def _at_least(count: int, one: str, many: str | None = None) -> str:
    return "must not be empty" if count == 1 else f"must have at least {count} {many or one + 's'}"


def _shown(fault: Any) -> str:
    """Return the refused value where it is short enough to help."""
    value = fault.get("input")
    if fault["type"] in ("missing", "extra_forbidden", "value_error", "assertion_error"):
        return ""
    if not isinstance(value, str | int | float | bool) or value == "":
        return ""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else ""
