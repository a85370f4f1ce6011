"""A unified diff as HTML: a part for each file, a line for each line, coloured by what became of it."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

_LEFT_OUT = ("index ", "--- ", "+++ ", "similarity ", "old mode", "new mode")
_MARKS = {"+": "come", "-": "gone", "@": "place", "\\": "note", "…": "note"}


def patch(diff: str) -> SafeString:
    """Return the diff; every line keeps its sign, so that it is told without colours too."""
    parts = ((name, _lines(lines)) for name, lines in _files(diff))
    return format_html_join("", '<h4 class="patch-file">{}</h4><pre class="patch" tabindex="0">{}</pre>', parts)


def _files(diff: str) -> Iterator[tuple[str, list[str]]]:
    name = ""
    lines: list[str] = []
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            if name:
                yield name, lines
            name, lines = line.rpartition(" b/")[2], []
        else:
            lines.append(line)
    if name:
        yield name, lines


def _lines(lines: list[str]) -> SafeString:
    """Return the lines of one file, without what git says of it before its first change."""
    start = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    head = [line for line in lines[:start] if line and not line.startswith(_LEFT_OUT)]
    shown = (*(("note", line) for line in head), *((_MARKS.get(line[:1], "same"), line) for line in lines[start:]))
    return format_html_join("", '<span class="line-{}">{}\n</span>', shown) or format_html("{}", "")
