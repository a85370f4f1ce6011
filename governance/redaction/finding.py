"""Which events a selection means, and what each would lose."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from governance.redaction.matching import Find, Matcher
from governance.redaction.schemas import RedactionSelect
from memories import selectors
from memories.schemas import MemorySearch
from memoryhub.core import rows
from memoryhub.core.log.digests import canonical_json

_AT_ONCE = 1_000
_SEARCHED = 100
_UNTOUCHED = "event_type NOT IN ('payload.erased', 'payload.redacted') AND payload_json IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Event:
    """An event as far as redaction looks at it."""

    position: int
    type: str
    stream: str
    occurred_at: str
    payload: str


@dataclass(frozen=True, slots=True)
class Found:
    """An event that loses something."""

    event: Event
    left: Any
    """The payload without it."""
    finds: list[Find]


@dataclass(slots=True)
class Findings:
    """All that a selection finds."""

    found: list[Found] = field(default_factory=list)

    @property
    def positions(self) -> list[int]:
        """The events that lose something."""
        return [each.event.position for each in self.found]

    @property
    def count(self) -> int:
        """How many finds there are."""
        return sum(len(find.spans) for each in self.found for find in each.finds)

    def payloads(self) -> dict[int, Any]:
        """Return what is left of each event's payload."""
        return {each.event.position: each.left for each in self.found}

    def texts(self) -> set[str]:
        """Return what is taken out."""
        return {text for each in self.found for find in each.finds for text in find.texts}

    def token(self) -> str:
        """Return a token of exactly this: which events, and what is left of them."""
        digest = hashlib.sha256(b"redact")
        for each in self.found:
            digest.update(f"{each.event.position} {canonical_json(each.left)}\n".encode())
        return digest.hexdigest()[:16]


def find_places(selection: RedactionSelect, *, progress: Callable[[int], None] = lambda _: None) -> Findings:
    """Return what the selection finds in the current store's log; reads every event that it may mean once.

    Args:
        selection: what to look for, and where.
        progress: called with the position of each event that is read.
    """
    matcher, findings = Matcher(selection), Findings()
    for event in _events(selection):
        progress(event.position)
        left, finds = matcher.clean(json.loads(event.payload))
        if finds:
            findings.found.append(Found(event, left, finds))
    return findings


def selected_events(selection: RedactionSelect) -> list[Event]:
    """Return the events of what ``whole`` selects."""
    return list(_events(selection))


def _events(selection: RedactionSelect) -> Iterator[Event]:
    conditions, parameters = _conditions(selection)
    sql = (
        "SELECT position, event_type, stream_id, occurred_at, payload_json FROM raw_events "
        f"WHERE position > %s AND {' AND '.join(conditions)} ORDER BY position LIMIT {_AT_ONCE}"
    )
    last = 0
    while batch := rows.fetch(sql, [last, *parameters]):
        yield from (Event(*row) for row in batch)
        last = batch[-1][0]


def _conditions(selection: RedactionSelect) -> tuple[list[str], list[Any]]:
    conditions, parameters = [_UNTOUCHED], []
    if selection.ids or selection.search:
        conditions.append(_OF_ENTITIES)
        parameters += [json.dumps(_ids(selection))] * 2
    if selection.event_types:
        conditions.append("event_type IN (SELECT value FROM json_each(%s))")
        parameters.append(json.dumps(selection.event_types))
    if selection.text and not selection.ignore_case:
        conditions.append("instr(payload_json, %s) > 0")
        parameters.append(json.dumps(selection.text, ensure_ascii=False)[1:-1])
    return conditions, parameters


_OF_ENTITIES = (
    "(position IN (SELECT value FROM json_each(%s)) OR stream_id IN (SELECT stream_id FROM raw_events "
    "WHERE stream_seq = 1 AND position IN (SELECT value FROM json_each(%s))))"
)
"""An id is the position of the first event of its stream; a message's is in the middle of its turn's."""


def _ids(selection: RedactionSelect) -> Sequence[int]:
    if not selection.search:
        return selection.ids
    question = MemorySearch(query=selection.search, limit=_SEARCHED)
    found = [hit["id"] for hit in selectors.search(command=question, whole_store=True).results]
    return [each for each in found if not selection.ids or each in selection.ids]
