"""What a commit's message says of decisions: trailers, and whether it reverts another commit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from decisions.models import LinkType

_TRAILER = re.compile(r"^(decisions?|refs):[ \t]*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_ID = re.compile(r"#(\d{1,15})\b")
_REVERTED = re.compile(r"^This reverts commit ([0-9a-f]{7,64})", re.IGNORECASE | re.MULTILINE)
_MAX_IDS = 50


class Mention(NamedTuple):
    """A decision that a commit's message names."""

    decision_id: int
    link_type: LinkType


def mentions(message: str) -> list[Mention]:
    """Return the decisions that trailers name: ``Decision: #412`` implements it, ``Refs: #412`` relates to it."""
    found: dict[int, LinkType] = {}
    for decision_id, link_type in _mentions(message):
        if found.get(decision_id) is not LinkType.IMPLEMENTS:
            found[decision_id] = link_type
    return [Mention(*item) for item in list(found.items())[:_MAX_IDS]]


def _mentions(message: str) -> Iterator[tuple[int, LinkType]]:
    for match in _TRAILER.finditer(message):
        link_type = LinkType.RELATES if match[1].lower() == "refs" else LinkType.IMPLEMENTS
        for number in _ID.findall(match[2]):
            yield int(number), link_type


def reverted_sha(message: str) -> str | None:
    """Return the hash of the commit that this one reverts, as git writes it."""
    found = _REVERTED.search(message)
    return found[1].lower() if found else None
