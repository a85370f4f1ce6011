"""What changed between two texts, word by word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_AROUND = 2
_MAX_WORDS = 4_000
"""A changed passage of more words is shown whole, as gone and come: comparing it would take too long to wait for."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a comparison: text that stayed, or that went and what came for it, or a number of lines left out."""

    text: str = ""
    gone: str = ""
    come: str = ""
    hidden_lines: int = 0


def compare(before: str, after: str) -> Iterator[Piece]:
    """Yield the changed lines word by word, with two lines around them."""
    old, new = _lines(before), _lines(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(old) > 5_000)
    opcodes = matcher.get_opcodes()
    for place, (what, start, end, new_start, new_end) in enumerate(opcodes):
        if what == "equal":
            yield from _unchanged(old[start:end], is_first=place == 0, is_last=place == len(opcodes) - 1)
        else:
            yield from _changed("".join(old[start:end]), "".join(new[new_start:new_end]))


def marked_diff(before: str, after: str) -> str:
    """Return the comparison as text: ``[-gone-]``, ``{+come+}``, and how many lines were left out; "" if equal."""
    return "" if before == after else "".join(map(_marked, compare(before, after)))


def _marked(piece: Piece) -> str:
    if piece.hidden_lines:
        return f"[… {piece.hidden_lines} lines …]\n"
    gone = f"[-{piece.gone}-]" if piece.gone else ""
    come = f"{{+{piece.come}+}}" if piece.come else ""
    return f"{piece.text}{gone}{come}"


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _unchanged(lines: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[Piece]:
    head = [] if is_first else list(lines[:_AROUND])
    tail = [] if is_last else list(lines[-_AROUND:])
    hidden = len(lines) - len(head) - len(tail)
    if hidden <= 1:
        yield Piece("".join(lines))
        return
    yield from [Piece("".join(head)), Piece(hidden_lines=hidden), Piece("".join(tail))]


def _changed(before: str, after: str) -> Iterator[Piece]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if len(old) + len(new) > _MAX_WORDS:
        yield Piece(gone=before, come=after)
        return
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for what, start, end, new_start, new_end in matcher.get_opcodes():
        was, now = "".join(old[start:end]), "".join(new[new_start:new_end])
        yield Piece(was) if what == "equal" else Piece(gone=was, come=now)
