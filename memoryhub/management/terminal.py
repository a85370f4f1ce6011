"""Colour for terminals: which parts of a line are bold, dim, yellow or red.

Standard library only, because help is printed before anything else is imported. Stored text passes ``printable`` here,
part by part, so that it cannot emit control sequences itself. A pipe gets the bytes of the plain text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from memoryhub.core.text import printable


# Parameters of the control sequence "select graphic rendition" (ECMA-48)
class Style(StrEnum):
    BOLD = "1"
    DIM = "2"
    RED = "31"
    YELLOW = "33"


class Span(NamedTuple):
    text: str
    style: Style | None = None


Line = str | Sequence[Span]

# At the beginning of a line or an item: ``#412`` or ``org#412``
_REFERENCE = re.compile(r"(?:- )?(\w*#\d+)\b")


def discard_output() -> None:
    """Send the rest of the output nowhere: its reader has closed the pipe, and a flush at the end would fail."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def has_colour(stream: Any) -> bool:
    """Return whether a stream is a terminal that may be coloured (https://no-color.org), or says so itself."""
    if (is_coloured := getattr(stream, "is_coloured", None)) is not None:
        return bool(is_coloured)
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    return bool(stream.isatty())


def highlight(line: str, *parts: tuple[str, Style]) -> list[Span]:
    """Return the line with styles for the parts, which are looked for one after the other; the text is unchanged."""
    spans = []
    rest_of_line = line
    for text, style in parts:
        before, match, after = rest_of_line.partition(text) if text else ("", "", "")
        if match:
            spans += [Span(before), Span(match, style)]
            rest_of_line = after
    return [*spans, Span(rest_of_line)]


def rendered(line: Line, *, colour: bool) -> str:
    """Return a line for a terminal, or as plain text."""
    if isinstance(line, str):
        return printable(line)
    if not colour:
        return printable("".join(span.text for span in line))
    return "".join(map(_coloured, line))


def _coloured(span: Span) -> str:
    text = printable(span.text)
    if not (span.style and text):
        return text
    return f"\x1b[{span.style}m{text}\x1b[0m"


def outlined(text: str) -> Iterator[Line]:
    """Yield the lines of an answer with its headings bold, and the ids at the beginnings of its lines dim."""
    for line in text.splitlines():
        if reference := _REFERENCE.match(line):
            yield highlight(line, (reference[1], Style.DIM))
        elif line.endswith(":") and not line.startswith((" ", "-")):
            yield [Span(line, Style.BOLD)]
        else:
            yield line
