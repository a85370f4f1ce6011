"""Change one table in the text of a TOML file, and leave every other byte as it is.

Python reads TOML but does not write it. Each change is made in the text, then read back and compared with what it was
to be; what comes out otherwise is refused by the caller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def put_table(text: str, path: tuple[str, ...], value: Mapping[str, Any]) -> str:
    """Write a table: in the place of the one of that name, else at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join(path)}]", *(f"{name} = {_written(each)}" for name, each in value.items())]
    table = newline.join(lines) + newline
    found = _span(text, path)
    if found:
        return text[: found[0]] + table + text[found[1] :]
    parted = text if not text or text.endswith("\n") else text + newline
    return parted + (newline if parted.strip() else "") + table


def take_table(text: str, path: tuple[str, ...]) -> str:
    """Take a table out, with the blank line before it."""
    found = _span(text, path)
    if not found:
        return text
    before, after = text[: found[0]], text[found[1] :]
    return re.sub(r"(\r?\n)[ \t]*\r?\n\Z", r"\1", before) + after


def _span(text: str, path: tuple[str, ...]) -> tuple[int, int] | None:
    """Return where a table begins and ends, its own tables with it; comments before the next belong to that."""
    name = r"[ \t]*\.[ \t]*".join(rf"(?:{re.escape(part)}|\"{re.escape(part)}\"|'{re.escape(part)}')" for part in path)
    header = re.search(rf"^[ \t]*\[[ \t]*{name}[ \t]*\]", text, re.MULTILINE)
    if not header:
        return None
    inside = re.compile(rf"[ \t]*\[[ \t]*{name}[ \t]*\.")
    others = (each.start() for each in _HEADER.finditer(text, header.end()) if not inside.match(text, each.start()))
    end = next(others, len(text))
    lines = text[header.start() : end].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return header.start(), header.start() + len("".join(lines))


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_written(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
