"""Recognise the text of a context pack when it comes back, so that the hub does not store its own output."""

from __future__ import annotations

import hashlib
import re

from memories.models import ContextPack
from memoryhub.core.errors import Invalid

# First words of every pack, and of what is given at a prompt
MARK = "Memory Hub context pack"
RECALL_MARK = "Memory Hub recall"
_ITEM = re.compile(r"^- (?:\w+)?#\d+ .+$", re.MULTILINE)
_HEAD = re.compile(rf"(?:{MARK}|{RECALL_MARK}) (?:#\d+|of )")
# Number of recent packs whose lines are recognised
_LATEST = 200

# A single line may be quoted
_LEAST_LINES = 2


def mark_of(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:10]


def refuse_echo(content: str) -> None:
    """Refuse text that came from the hub.

    Raises:
        Invalid: the text is a context pack, or several lines of one.
    """
    if is_echo(content):
        raise Invalid(
            "this text comes from a Memory Hub context pack and is stored already; write only what is new, in your own "
            "words"
        )


def is_echo(content: str) -> bool:
    """Return whether a text is a context pack, or contains several lines of a recent one."""
    return bool(_HEAD.search(content)) or _has_pack_lines(content)


def _has_pack_lines(content: str) -> bool:
    lines = _ITEM.findall(content)
    if len(lines) < _LEAST_LINES:
        return False
    sent: set[str] = set()
    for marks in ContextPack.objects.order_by("-id").values_list("marks", flat=True)[:_LATEST]:
        sent.update(marks.values())
    return sum(mark_of(line) in sent for line in lines) >= _LEAST_LINES
