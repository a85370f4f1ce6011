"""Read what stands between ``---`` at the head of a document: the part of YAML that people write there."""

from __future__ import annotations

import json
import re
from typing import Any

from memoryhub.core.errors import Invalid

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"([^\s:#'\"\-][^:]*?)[ \t]*:(?:[ \t]+(.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_IN_LIST = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^,]+")
_COMMENT = re.compile(r"(?:\A|\s)#.*\Z")
# Levels of lists and objects in a value. People write one or two; Python's own limit is a thousand calls.
_DEEPEST = 32
_BLOCKS = {"|": "\n", "|-": "\n", ">": " ", ">-": " "}


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the front matter by its keys in lower case, and the document without it.

    A value is a string, a list, or what its JSON says. Nested mappings and anchors are not read; nothing is ever run.

    Raises:
        Invalid: a value is nested too deeply.
    """
    found = _FRONT_MATTER.match(text)
    if found is None:
        return {}, text
    return _values(found[1].split("\n")), text[found.end() :]


def _values(lines: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    key, start = "", 0
    for number, line in enumerate([*lines, "end:"]):
        match = _KEY.fullmatch(line.rstrip())
        if match is None:
            continue
        if key:
            values[key] = _value(lines[start], lines[start + 1 : number])
        key, start = match[1].lower(), number
    return values


def _value(line: str, below: list[str]) -> Any:
    """Return what a key says on its own line, or in the lines below it."""
    match = _KEY.fullmatch(line.rstrip())
    own = (match[2] or "").strip() if match else ""
    if own in _BLOCKS:
        return _BLOCKS[own].join(each.strip() for each in below).strip()
    items = [found[1] for each in below if (found := _ITEM.fullmatch(each))]
    if items and not _COMMENT.sub("", own):
        return [_scalar(item) for item in items]
    more = [each.strip() for each in below if not each.lstrip().startswith("#")]
    return _scalar(" ".join(filter(None, [own, *more])))


def _scalar(text: str, depth: int = 0) -> Any:
    text = text.strip()
    _require_shallow(depth)
    if text[:1] in ('"', "[", "{"):
        try:
            value = json.loads(text)
        except ValueError:
            pass
        except RecursionError:
            _require_shallow(_DEEPEST + 1)
        else:
            _require_shallow(depth + _depth(value))
            return value
    if text.startswith("["):
        inside = _COMMENT.sub("", text).strip().removeprefix("[").removesuffix("]")
        return [item for each in _IN_LIST.findall(inside) if (item := _scalar(each, depth + 1))]
    if match := re.match(r"\"(.*)\"|'((?:[^']|'')*)'", text):
        return match[1] if match[1] is not None else match[2].replace("''", "'")
    return _COMMENT.sub("", text).strip()


def _depth(value: Any) -> int:
    """Return how many lists and objects are around the innermost value, without recursion."""
    depth, level = 0, [value]
    while level := [item for each in level if isinstance(each, list | dict) for item in _items(each)]:
        depth += 1
    return depth


def _items(value: list[Any] | dict[str, Any]) -> list[Any]:
    return value if isinstance(value, list) else list(value.values())


def _require_shallow(depth: int) -> None:
    if depth > _DEEPEST:
        raise Invalid(f"its front matter is nested too deeply; at most {_DEEPEST} levels are read")
