"""Change single values in the text of a JSON or TOML file and keep every other byte.

A path is a tuple of keys and indices. The caller has checked that the text is valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]

_LINE = 200
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\n([ \t]+)\S")


@dataclass(frozen=True, slots=True)
class _Item:
    name: str | int
    # Start of the key in an object, of the value in a list.
    first: int
    value: int
    end: int


def put(text: str, path: Path, value: Any) -> str:
    """Set the value at a path and create missing parents. An index past the end appends."""
    start = _skip(text, 0)
    for depth, name in enumerate(path):
        items = _items(text, start)
        item = next((item for item in reversed(items) if item.name == name), None)
        if item is None:
            return _add(text, start, items, name, _nested(path[depth + 1 :], value))
        if depth == len(path) - 1:
            return text[: item.value] + _written(text, value, _indent(text, item.first)) + text[item.end :]
        start = item.value
    return _written(text, value, "")


def take(text: str, path: Path) -> str:
    """Remove the value at a path, and parents that become empty."""
    start, around = _skip(text, 0), []
    for name in path:
        items = _items(text, start)
        at = next(at for at, item in reversed(list(enumerate(items))) if item.name == name)
        around.append((start, items, at))
        start = items[at].value
    while len(around) > 1 and len(around[-1][1]) == 1:
        around.pop()
    return _without(text, *around[-1])


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _items(text: str, start: int) -> list[_Item]:
    items: list[_Item] = []
    at = _skip(text, start + 1)
    while text[at] not in "}]":
        first, name = at, len(items)
        if text[start] == "{":
            name, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        items.append(_Item(name, first, at, end))
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return items


def _add(text: str, start: int, items: list[_Item], name: str | int, value: Any) -> str:
    unit = _unit(text)
    indent = _indent(text, items[-1].first) if items else _indent(text, start) + unit
    key = f"{json.dumps(name, ensure_ascii=False)}: " if text[start] == "{" else ""
    written = key + _written(text, value, indent)
    if items:
        end = items[-1].end
        between = text[items[-2].end : items[-1].first] if len(items) > 1 else _between(text, start, items[-1])
        return f"{text[:end]}{between}{written}{text[end:]}"
    close = _skip(text, start + 1)
    lines = f"{_newline(text)}{indent}{written}{_newline(text)}{_indent(text, start)}" if unit else written
    return f"{text[: start + 1]}{lines}{text[close:]}"


# The separator of a second item: the white space before the first, or a blank.
def _between(text: str, start: int, only: _Item) -> str:
    before = text[start + 1 : only.first]
    return f",{before}" if before else ", "


def _without(text: str, start: int, items: list[_Item], at: int) -> str:
    if len(items) == 1:
        return text[: start + 1] + text[_skip(text, items[0].end) :]
    if at:
        return text[: items[at - 1].end] + text[items[at].end :]
    return text[: items[0].first] + text[items[1].first :]


def _nested(path: Path, value: Any) -> Any:
    for name in reversed(path):
        value = {name: value} if isinstance(name, str) else [value]
    return value


# A value as text that starts at that indent; short lists and flat objects stay on one line.
def _written(text: str, value: Any, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False)
    unit = _unit(text)
    parts = list(value.values() if isinstance(value, dict) else value) if isinstance(value, dict | list) else []
    is_flat = isinstance(value, list) or not any(isinstance(part, dict) for part in parts)
    if not unit or not parts or (is_flat and len(indent + line) <= _LINE):
        return line
    inner, newline = indent + unit, _newline(text)
    keys = (
        [f"{json.dumps(key, ensure_ascii=False)}: " for key in value] if isinstance(value, dict) else [""] * len(parts)
    )
    lines = [key + _written(text, part, inner) for key, part in zip(keys, parts, strict=True)]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{newline}{inner}{f',{newline}{inner}'.join(lines)}{newline}{indent}{closing}"


# The indent of one level; "" for a file on one line.
def _unit(text: str) -> str:
    found = _INDENT.search(text)
    if found:
        return found[1]
    return "" if _items(text, _skip(text, 0)) else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def put_table(text: str, path: tuple[str, ...], value: Mapping[str, Any]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join(path)}]", *(f"{name} = {_toml_value(item)}" for name, item in value.items())]
    table = newline.join(lines) + newline
    found = _span(text, path)
    if found:
        return text[: found[0]] + table + text[found[1] :]
    parted = text if not text or text.endswith("\n") else text + newline
    return parted + (newline if parted.strip() else "") + table


def take_table(text: str, path: tuple[str, ...]) -> str:
    """Remove a table and the blank line before it."""
    found = _span(text, path)
    if not found:
        return text
    before, after = text[: found[0]], text[found[1] :]
    return re.sub(r"(\r?\n)[ \t]*\r?\n\Z", r"\1", before) + after


# Start and end of a table with its subtables; comments before the next table belong to that.
def _span(text: str, path: tuple[str, ...]) -> tuple[int, int] | None:
    name = r"[ \t]*\.[ \t]*".join(rf"(?:{re.escape(part)}|\"{re.escape(part)}\"|'{re.escape(part)}')" for part in path)
    header = re.search(rf"^[ \t]*\[[ \t]*{name}[ \t]*\]", text, re.MULTILINE)
    if not header:
        return None
    inside = re.compile(rf"[ \t]*\[[ \t]*{name}[ \t]*\.")
    headers = (match.start() for match in _HEADER.finditer(text, header.end()))
    others = (start for start in headers if not inside.match(text, start))
    end = next(others, len(text))
    lines = text[header.start() : end].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return header.start(), header.start() + len("".join(lines))


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml_value(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
