from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from governance.models import Rollback
from governance.rollback.schemas import SHOWN, Point, RollbackList, RollbackView, Selection
from memoryhub.core import clock
from memoryhub.core.errors import NotFound
from memoryhub.core.events.event_types import names_where
from memoryhub.core.events.rollback import Left, Treatment
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import TEXTS, json_list

_SELECT = "SELECT position, event_type, stream_id, session_id FROM raw_events WHERE {} ORDER BY position"


class Header(NamedTuple):
    """The columns of an event without its payload."""

    position: int
    type: str
    stream: str
    session: str

    # Its own position, if its stream has no id
    @property
    def entity(self) -> int:
        tail = self.stream.partition(":")[2]
        return int(tail) if tail.isdecimal() else self.position


@dataclass(frozen=True)
class Selected:
    """The events of a selection."""

    headers: list[Header]
    by_type: dict[str, list[Header]] = field(default_factory=dict)

    @cached_property
    def positions(self) -> frozenset[int]:
        return frozenset(header.position for header in self.headers)

    @cached_property
    def streams(self) -> dict[int, str]:
        return {header.position: header.stream for header in self.headers}

    def of(self, *types: str) -> list[Header]:
        return sorted(header for name in types for header in self.by_type.get(name, ()))


def select(selection: Selection) -> Selected:
    """Return the events that match a selection, except those that govern the store."""
    conditions, parameters = _conditions(selection)
    headers = [Header(*row) for row in rows.fetch(_SELECT.format(" AND ".join(conditions)), parameters)]
    by_type: dict[str, list[Header]] = {}
    for header in headers:
        by_type.setdefault(header.type, []).append(header)
    return Selected(headers, by_type)


def _conditions(selection: Selection) -> tuple[list[str], list[Any]]:
    conditions = [f"event_type NOT IN {TEXTS}"]
    parameters: list[Any] = [json.dumps(names_where(lambda known: known.rollback.treatment is Treatment.GOVERNS))]
    if selection.session_id:
        conditions.append("(session_id = %s OR stream_id = %s)")
        parameters += [selection.session_id, f"session:{selection.session_id}"]
    for column in ("actor", "source"):
        if getattr(selection, column):
            conditions.append(f"{column} = %s")
            parameters.append(getattr(selection, column))
    if not selection.include_people and selection.source != "admin":
        conditions.append("source <> 'admin'")
    for point, by_position, by_time in (
        (selection.since, "position >= %s", "occurred_at >= %s"),
        (selection.until, "position <= %s", "occurred_at < %s"),
    ):
        if point is not None:
            conditions.append(by_position if isinstance(point, int) else by_time)
            parameters.append(_stored(point))
    return conditions, parameters


def _stored(point: Point) -> int | str:
    return point if isinstance(point, int) else clock.to_text(point)


def listed(ids: Iterable[int]) -> str:
    """Return ids as the parameter of ``IDS``, in order."""
    return json_list(sorted(ids))


def find_rollback(rollback_id: int) -> Rollback:
    """Return a roll-back.

    Raises:
        NotFound: no roll-back has this id.
    """
    found: Rollback | None = Rollback.objects.filter(id=rollback_id).first()
    if found is None:
        raise NotFound(f"there is no roll-back #{rollback_id} in this store; list roll-backs to see their ids")
    return found


def list_rollbacks(*, command: RollbackList) -> Listing:
    """Return a page of roll-backs, latest first."""
    cursor = decode_cursor(command.cursor, (int,))
    found = Rollback.objects.filter(id__lt=cursor[0]) if cursor else Rollback.objects.all()
    listed = list(found.order_by("-id")[: command.limit + 1])
    shown = [view(rollback).model_dump(mode="json") for rollback in listed[: command.limit]]
    return page(
        [{"id": item["id"], "action": item["action"]} for item in shown] if command.compact else shown,
        total=Rollback.objects.count(),
        more=len(listed) > command.limit,
        cursor_of=lambda item: encode_cursor(item["id"]),
        line=rollback_line,
        max_tokens=command.max_tokens,
    )


def view(rollback: Rollback) -> RollbackView:
    """Return a roll-back in the form that callers get."""
    names = set(RollbackView.model_fields) - {"counts", "left", "left_count", "undone_left"}
    return RollbackView(
        **{name: getattr(rollback, name) for name in names},
        counts=dict(Counter(step["do"] for step in rollback.steps)),
        left=[Left.model_validate(item) for item in rollback.left[:SHOWN]],
        left_count=len(rollback.left),
        undone_left=[Left.model_validate(item) for item in rollback.undone_left[:SHOWN]],
    )


def rollback_line(rollback: dict[str, Any]) -> str:
    """Return a roll-back as one line."""
    if "selection" not in rollback:
        return f"#{rollback['id']} {rollback['action']}"
    chosen = ", ".join(f"{name}={value}" for name, value in rollback["selection"].items())
    done = ", ".join(f"{count} × {do}" for do, count in rollback["counts"].items())
    undone = f" (undone by {rollback['undone_by']})" if rollback["undone_at"] else ""
    why = f": {rollback['reason']}" if rollback["reason"] else ""
    return (
        f"#{rollback['id']} {clock.minute(rollback['made_at'])} {rollback['action']} of {chosen}: {done}{undone}{why}"
    )
