"""Knowing a pack's text when it comes back: what the hub told is no new memory."""

from __future__ import annotations

import hashlib
import re

from memories.models import ContextPack
from memories.pack.mark import MARK
from memoryhub.core.errors import Invalid

_ITEM = re.compile(r"^- (?:\w+)?#\d+ .+$", re.MULTILINE)
_HEAD = re.compile(rf"{MARK} (?:#\d+|of )")
_LATEST = 50
"""Packs whose lines are known."""

_LEAST_LINES = 2
"""One line may be quoted."""


def mark_of(line: str) -> str:
    """Return the mark by which a line of a pack is known again."""
    return hashlib.sha256(line.encode()).hexdigest()[:10]


def refuse_echo(content: str) -> None:
    """Refuse a text that the hub itself has told: a pack, or several lines of one.

    Raises:
        Invalid: it is one.
    """
    if is_echo(content):
        raise Invalid(
            "this is what Memory Hub told you of what is kept already; write what is new, in words of its own"
        )


def is_echo(content: str) -> bool:
    """Return whether the hub itself has told this text: a pack, or several lines of one of the latest."""
    return bool(_HEAD.search(content)) or _has_pack_lines(content)


def _has_pack_lines(content: str) -> bool:
    lines = _ITEM.findall(content)
    if len(lines) < _LEAST_LINES:
        return False
    told: set[str] = set()
    for marks in ContextPack.objects.order_by("-id").values_list("marks", flat=True)[:_LATEST]:
        told.update(marks.values())
    return sum(mark_of(line) in told for line in lines) >= _LEAST_LINES
