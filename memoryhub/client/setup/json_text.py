"""Change single values in the text of a JSON or TOML file and keep every other byte.

JSON may have comments and trailing commas. A path is a tuple of keys and indices. The caller has checked that the text
is valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import Any

Path = tuple[str | int, ...]

_LINE = 200
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\n([ \t]+)\S")
# The line break and indent before a value, or the blanks before it in its line.
_LEAD = re.compile(r"(?:\r?\n)?[ \t]*\Z")
_COMMENT = r"//[^\r\n]*|/\*.*?\*/"
_COMMENTS_IN_LINE = re.compile(rf"(?:[ \t]*(?:{_COMMENT}))*", re.DOTALL)
_COMMA = re.compile(rf"(?:\s|{_COMMENT})*,", re.DOTALL)
_STRING_COMMENT_OR_LAST_COMMA = re.compile(
    rf'"(?:\\.|[^"\\])*"|(?P<blank>{_COMMENT}|,(?=(?:\s|{_COMMENT})*[}}\]]))', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class _Item:
    name: str | int
    # Start of the key in an object, of the value in a list.
    first: int
    value: int
    end: int


def plain(text: str) -> str:
    """Return JSON with blanks in place of comments and trailing commas: every value keeps its position."""
    return _STRING_COMMENT_OR_LAST_COMMA.sub(_blanked, text)


def _blanked(match: re.Match[str]) -> str:
    if match["blank"]:
        return re.sub(r"[^\r\n]", " ", match[0])
    return match[0]


def put(text: str, path: Path, value: Any) -> str:
    """Set the value at a path and create missing parents. An index past the end appends."""
    scan = plain(text)
    start = _skip(scan, 0)
    for depth, name in enumerate(path):
        items = _items(scan, start)
        item = next((item for item in reversed(items) if item.name == name), None)
        if item is None:
            for part in reversed(path[depth + 1 :]):
                value = {part: value} if isinstance(part, str) else [value]
            return _add_item(text, start, items, name, value)
        if depth == len(path) - 1:
            return text[: item.value] + _json_of(text, value, _indent(text, item.first)) + text[item.end :]
        start = item.value
    return _json_of(text, value, "")


def take(text: str, path: Path, *, stay: int = 0) -> str:
    """Remove the value at a path, and parents that become empty except the first ``stay`` of them."""
    scan = plain(text)
    start, around = _skip(scan, 0), []
    for name in path:
        items = _items(scan, start)
        at = next(at for at, item in reversed(list(enumerate(items))) if item.name == name)
        around.append((start, items, at))
        start = items[at].value
    while len(around) > stay + 1 and len(around[-1][1]) == 1:
        around.pop()
    return _without(text, *around[-1])


def _skip(scan: str, at: int) -> int:
    blank = _BLANK.match(scan, at)
    return blank.end() if blank else at


def _items(scan: str, start: int) -> list[_Item]:
    items: list[_Item] = []
    at = _skip(scan, start + 1)
    while scan[at] not in "}]":
        first, name = at, len(items)
        if scan[start] == "{":
            name, at = _DECODER.raw_decode(scan, at)
            at = _skip(scan, _skip(scan, at) + 1)
        _, end = _DECODER.raw_decode(scan, at)
        items.append(_Item(name, first, at, end))
        at = _skip(scan, end)
        if scan[at] == ",":
            at = _skip(scan, at + 1)
    return items


def _add_item(text: str, start: int, items: list[_Item], name: str | int, value: Any) -> str:
    indent = _indent(text, items[-1].first) if items else _indent(text, start) + (_unit(text) or "  ")
    key = f"{json.dumps(name, ensure_ascii=False)}: " if text[start] == "{" else ""
    written = key + _json_of(text, value, indent)
    if items:
        return _add_after(text, items, written)
    close = _skip(plain(text), start + 1)
    head, tail = _parted(text[start + 1 : close])
    if not _unit(text) and "\n" not in head + tail:
        return f"{text[: start + 1]}{head}{written}{tail}{text[close:]}"
    newline = _newline(text)
    tail = tail if "\n" in tail else f"{newline}{_indent(text, start)}"
    return f"{text[: start + 1]}{head}{newline}{indent}{written}{tail}{text[close:]}"


# The new item follows the comments in the last one's line, and has a trailing comma if that has one.
def _add_after(text: str, items: list[_Item], written: str) -> str:
    end = items[-1].end
    comma = _comma(text, end)
    gap = _parted(text[: items[-1].first])[1] or (" " if len(items) == 1 else "")
    comments = _COMMENTS_IN_LINE.match(text, comma or end)
    place = comma or end
    if comments and "\n" in gap:
        place = comments.end()
    if comma:
        return f"{text[:place]}{gap}{written},{text[place:]}"
    return f"{text[:end]},{text[end:place]}{gap}{written}{text[place:]}"


def _without(text: str, start: int, items: list[_Item], at: int) -> str:
    item = items[at]
    before, gap = _parted(text[: item.first])
    comma = _comma(text, item.end)
    if at < len(items) - 1 and "\n" not in gap:
        return text[: item.first] + text[comma:].lstrip(" \t")
    if comma or not at:
        after = text[comma or item.end :]
        is_empty = len(items) == 1 and not (before[start + 1 :] + after[: _skip(after, 0)]).strip()
        if is_empty and after.lstrip()[:1] in "}]":
            return before[: start + 1] + after.lstrip()
        return before + after
    separator = _comma(text, items[at - 1].end)
    return before[: separator - 1] + before[separator:] + text[item.end :]


# The position after the comma that follows a value, or 0.
def _comma(text: str, end: int) -> int:
    match = _COMMA.match(text, end)
    return match.end() if match else 0


# A text without its last line break and indent, and these.
def _parted(text: str) -> tuple[str, str]:
    lead = _LEAD.search(text)
    place = lead.start() if lead else len(text)
    return text[:place], text[place:]


# A value as text that starts at that indent; short lists and flat objects stay on one line.
def _json_of(text: str, value: Any, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False)
    unit = _unit(text)
    if not unit or not isinstance(value, dict | list) or not value:
        return line
    is_flat = isinstance(value, list) or "{" not in json.dumps(list(value.values()))
    if is_flat and len(indent + line) <= _LINE:
        return line
    inner, newline = indent + unit, _newline(text)
    if isinstance(value, dict):
        lines = []
        for key, part in value.items():
            lines.append(f"{json.dumps(key, ensure_ascii=False)}: {_json_of(text, part, inner)}")
    else:
        lines = [_json_of(text, part, inner) for part in value]
    body = f"{newline}{inner}{f',{newline}{inner}'.join(lines)}{newline}{indent}"
    return f"{line[0]}{body}{line[-1]}"


# The indent of one level; "" for a file on one line.
def _unit(text: str) -> str:
    match = _INDENT.search(text)
    if match:
        return match[1]
    scan = plain(text)
    return "" if _items(scan, _skip(scan, 0)) else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def put_table(text: str, path: tuple[str, ...], value: Mapping[str, Any]) -> str:
    newline = _newline(text)
    lines = [f"[{'.'.join(path)}]", *starmap(toml_line, value.items())]
    table = newline.join(lines) + newline
    span = _span(text, path)
    if span:
        return text[: span[0]] + table + text[span[1] :]
    if text and not text.endswith("\n"):
        text += newline
    if text.strip():
        text += newline
    return text + table


def take_table(text: str, path: tuple[str, ...]) -> str:
    """Remove a table and the blank line before it."""
    span = _span(text, path)
    if not span:
        return text
    return re.sub(r"(\r?\n)[ \t]*\r?\n\Z", r"\1", text[: span[0]]) + text[span[1] :]


# Start and end of a table with its subtables; comments before the next table belong to that.
def _span(text: str, path: tuple[str, ...]) -> tuple[int, int] | None:
    name = r"[ \t]*\.[ \t]*".join(rf"(?:{re.escape(part)}|\"{re.escape(part)}\"|'{re.escape(part)}')" for part in path)
    header = re.search(rf"^[ \t]*\[[ \t]*{name}[ \t]*\]", text, re.MULTILINE)
    if not header:
        return None
    inside = re.compile(rf"[ \t]*\[[ \t]*{name}[ \t]*\.")
    starts = (match.start() for match in _HEADER.finditer(text, header.end()))
    end = next((start for start in starts if not inside.match(text, start)), len(text))
    lines = text[header.start() : end].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return header.start(), header.start() + len("".join(lines))


def toml_line(name: str, value: Any) -> str:
    """Return a value of TOML under a name, without a line end."""
    return f"{name} = {_toml_value(value)}"


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(starmap(toml_line, value.items())) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
