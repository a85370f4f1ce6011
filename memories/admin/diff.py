"""What changed between two texts, word by word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_AROUND = 2
_MAX_WORDS = 4_000
"""A changed passage of more words is shown whole, as gone and come: comparing it would take too long to wait for."""


def word_diff(before: str, after: str) -> SafeString:
    """Return the changed lines with two lines around them; what went is in ``del``, what came is in ``ins``."""
    return format_html_join("", "{}", ((part,) for part in _parts(_lines(before), _lines(after))))


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _parts(before: Sequence[str], after: Sequence[str]) -> Iterator[SafeString]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=len(before) > 5_000)
    opcodes = matcher.get_opcodes()
    for place, (what, start, end, new_start, new_end) in enumerate(opcodes):
        if what == "equal":
            yield _unchanged(before[start:end], is_first=place == 0, is_last=place == len(opcodes) - 1)
        else:
            yield _changed("".join(before[start:end]), "".join(after[new_start:new_end]))


def _unchanged(lines: Sequence[str], *, is_first: bool, is_last: bool) -> SafeString:
    head = [] if is_first else list(lines[:_AROUND])
    tail = [] if is_last else list(lines[-_AROUND:])
    hidden = len(lines) - len(head) - len(tail)
    if hidden <= 1:
        return format_html("{}", "".join(lines))
    noun = "line" if hidden == 1 else "lines"
    gap = format_html('<span class="gap">{} unchanged {}</span>', hidden, noun)
    return format_html("{}{}{}", "".join(head), gap, "".join(tail))


def _changed(before: str, after: str) -> SafeString:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if len(old) + len(new) > _MAX_WORDS:
        return format_html("{}{}", _gone(before), _come(after))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    pieces = (
        _words(what, "".join(old[start:end]), "".join(new[new_start:new_end]))
        for what, start, end, new_start, new_end in matcher.get_opcodes()
    )
    return format_html_join("", "{}", ((piece,) for piece in pieces))


def _words(what: str, old: str, new: str) -> SafeString:
    return format_html("{}", old) if what == "equal" else format_html("{}{}", _gone(old), _come(new))


def _gone(text: str) -> SafeString | str:
    return format_html("<del>{}</del>", text) if text else ""


def _come(text: str) -> SafeString | str:
    return format_html("<ins>{}</ins>", text) if text else ""
