"""Text as answers show it: numbers with their nouns, and stored text that cannot pass for a line of the answer.

An answer is lines, and a reader takes a line that begins with ``#412`` for a hit. Stored text therefore never begins
a line: in a list it is made one line (``flat``), elsewhere it stands indented under a line of the answer's own
(``indented``, ``hanging``). Standard library only.
"""

from __future__ import annotations

import json
import re

ONE_LINE = r"^[^\u000a-\u000d\u001c-\u001e\u0085\u2028\u2029]*$"
"""Matches a text without a line break: a pattern for pydantic, JSON Schema and ``re`` alike.

The characters are those at which ``str.splitlines`` cuts, because some reader of an answer cuts there too.
"""
FILLED_LINE = (
    r"^[^\u000a-\u000d\u001c-\u001e\u0085\u2028\u2029]*[^\s\u001c-\u001e\u0085]"
    r"[^\u000a-\u000d\u001c-\u001e\u0085\u2028\u2029]*$"
)
"""Matches a text without a line break that has more than spaces: what is stripped must not become empty."""
NOT_BLANK = r"\S"
"""Matches a text of one or more lines that has more than spaces."""

INDENT = "  "

_REFERENCE = re.compile(r"\s*\w*#\d")
_BREAK = re.compile("[\n-\r\x1c-\x1e\x85\u2028\u2029]")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029]")
# Controls but tab and newline, the carriage return of a CRLF, line separators, and what reorders text (Unicode TR 9).
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 memory`` or ``2 memories``.

    Args:
        number: how many.
        noun: one of them.
        plural: several; default: the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def flat(text: str) -> str:
    """Return ``text`` on one line: each run of line breaks, with the space around it, becomes one space."""
    if not _BREAK.search(text):
        return text
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def first_line(text: object, longest: int = 200) -> str:
    """Return the first line of a text, cut to ``longest`` characters; blank lines before it are skipped."""
    return str(text).strip().split("\n", 1)[0][:longest]


def shortened(text: str, longest: int) -> str:
    """Return ``text``; where it has more than ``longest`` characters, its beginning and an ellipsis."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def one_line(text: str, longest: int) -> str:
    """Return ``text`` on one line, each run of whitespace one space, shortened to ``longest`` characters."""
    return shortened(" ".join(text.split()), longest)


def as_name(text: str) -> str:
    """Return a name that begins a line of an answer: flat, and quoted where it could be taken for a reference."""
    name = flat(text)
    return f"'{name}'" if _REFERENCE.match(name) else name


def indented(text: str) -> str:
    """Return ``text`` with every line indented, to stand below a line of the answer's own."""
    return "\n".join(f"{INDENT}{line}".rstrip() for line in text.splitlines())


def hanging(text: str) -> str:
    """Return ``text`` with all lines indented but the first, which stands behind a label of the answer's own."""
    if not _BREAK.search(text):
        return text
    first, *others = text.splitlines()
    return "\n".join([first, indented("\n".join(others))]) if others else first


def compact_json(data: object) -> str:
    """Return ``data`` as JSON on one line, for readers who end a line at U+2028 too."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    return _UNSAFE_IN_JSON.sub(_escaped, text)


def printable(text: str) -> str:
    r"""Return ``text`` with control and bidirectional characters written as ``\u001b``.

    A terminal obeys them: they move the cursor, recolour or reorder what stands elsewhere. JSON stays the same JSON,
    for its strings may hold such a character or that escape alike.
    """
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
