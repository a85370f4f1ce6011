"""The events of a selection, and what they happened to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from governance.taint.schemas import Point, Selection
from memoryhub.core import clock, rows
from memoryhub.core.dialect import TEXTS, json_list
from memoryhub.core.event_types import names_where
from memoryhub.core.rollback import Treatment

_SELECT = "SELECT position, event_type, stream_id, session_id FROM raw_events WHERE {} ORDER BY position"


class Header(NamedTuple):
    """What is told of an event before its payload is looked at."""

    position: int
    type: str
    stream: str
    session: str

    @property
    def entity(self) -> int:
        """The id of what it happened to; its own position, where that has none."""
        tail = self.stream.partition(":")[2]
        return int(tail) if tail.isdecimal() else self.position


@dataclass(frozen=True)
class Selected:
    """The events of a selection."""

    headers: list[Header]
    by_type: dict[str, list[Header]] = field(default_factory=dict)

    @cached_property
    def positions(self) -> frozenset[int]:
        """Their positions."""
        return frozenset(each.position for each in self.headers)

    @cached_property
    def streams(self) -> dict[int, str]:
        """Their streams, by position."""
        return {each.position: each.stream for each in self.headers}

    def of(self, *types: str) -> list[Header]:
        """Return those of some types, in order."""
        return sorted(each for name in types for each in self.by_type.get(name, ()))


def select(selection: Selection) -> Selected:
    """Return the events that a selection means; none of what governs the store."""
    conditions, parameters = _conditions(selection)
    headers = [Header(*row) for row in rows.fetch(_SELECT.format(" AND ".join(conditions)), parameters)]
    by_type: dict[str, list[Header]] = {}
    for each in headers:
        by_type.setdefault(each.type, []).append(each)
    return Selected(headers, by_type)


def _conditions(selection: Selection) -> tuple[list[str], list[Any]]:
    wanted = [f"event_type NOT IN {TEXTS}"]
    parameters: list[Any] = [json.dumps(names_where(lambda known: known.rollback.treatment is Treatment.GOVERNS))]
    if selection.session_id:
        wanted.append("(session_id = %s OR stream_id = %s)")
        parameters += [selection.session_id, f"session:{selection.session_id}"]
    for column in ("actor", "source"):
        if getattr(selection, column):
            wanted.append(f"{column} = %s")
            parameters.append(getattr(selection, column))
    if not selection.include_people and selection.source != "admin":
        wanted.append("source <> 'admin'")
    for point, by_position, by_time in (
        (selection.since, "position >= %s", "occurred_at >= %s"),
        (selection.until, "position <= %s", "occurred_at < %s"),
    ):
        if point is not None:
            wanted.append(by_position if isinstance(point, int) else by_time)
            parameters.append(_stored(point))
    return wanted, parameters


def _stored(point: Point) -> int | str:
    return point if isinstance(point, int) else clock.to_text(point)


def listed(ids: Iterable[int]) -> str:
    """Return ids as the parameter of ``IDS``, in order."""
    return json_list(sorted(ids))
