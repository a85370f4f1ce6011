"""A few of many, as a person knows them: the first words, the date, and what keeps each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from governance.retention import keepers
from governance.retention.schemas import Sample
from governance.retention.selection import Candidate
from memoryhub.core import clock, rows
from memoryhub.core.dialect import IDS

_CHARACTERS = 120
_FIELDS = "title content command tool path subject phase description message purpose query summary".split()
_PAYLOADS = (
    f"SELECT position, event_type, payload_json FROM raw_events WHERE position IN {IDS} AND payload_json IS NOT NULL"
)


def samples_of(found: Sequence[Candidate]) -> dict[int, Sample]:
    """Return each as a sample, by id."""
    words = words_of([each.id for each in found])
    return {
        each.id: Sample(id=each.id, at=clock.from_text(each.at), text=words.get(each.id, ""), by=_keeper(each.keeper))
        for each in found
    }


def words_of(ids: Sequence[int]) -> dict[int, str]:
    """Return the first words of events, by position; those that are erased have none."""
    payloads = rows.fetch(_PAYLOADS, [json.dumps(sorted(set(ids)))])
    return {position: first_words(json.loads(payload)) or name for position, name, payload in payloads}


def first_words(payload: dict[str, Any]) -> str:
    """Return the beginning of what a payload says, as one line."""
    text = next((str(payload[name]) for name in _FIELDS if payload.get(name)), "")
    line = " ".join(text[: 4 * _CHARACTERS].split())
    return line if len(line) <= _CHARACTERS else f"{line[: _CHARACTERS - 1].rstrip()}…"


def _keeper(keeper: str) -> str:
    kind, number = keepers.parse(keeper) if keeper else ("", 0)
    return f"{keepers.REFERS_TO[kind]} #{number}".strip() if kind in keepers.REFERS_TO else ""
