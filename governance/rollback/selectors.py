"""The events of a selection, and roll-backs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from django.db.models import Q

from governance.models import Rollback
from governance.rollback.schemas import SHOWN, RollbackList, RollbackView, Selection
from memoryhub.core import clock, log
from memoryhub.core.errors import NotFound
from memoryhub.core.events.event_types import names_where
from memoryhub.core.events.rollback import Treatment
from memoryhub.core.origin import PERSONS_DOORS
from memoryhub.core.paging import newest_first
from memoryhub.core.schemas import Listing
from memoryhub.core.stores.dialect import json_list


class EventHeader(NamedTuple):
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
class SelectedEvents:
    """The events of a selection."""

    headers: list[EventHeader]

    @cached_property
    def positions(self) -> frozenset[int]:
        return frozenset(header.position for header in self.headers)

    @cached_property
    def streams(self) -> dict[int, str]:
        return {header.position: header.stream for header in self.headers}

    def of(self, *types: str) -> list[EventHeader]:
        return [header for header in self.headers if header.type in types]


def select(selection: Selection) -> SelectedEvents:
    """Return the events that match a selection, except those that govern the store."""
    columns = _matching(selection).values_list("position", "event_type", "stream_id", "session_id")
    return SelectedEvents(list(map(EventHeader._make, columns)))


def _matching(selection: Selection) -> log.EventQuerySet:
    governing = names_where(lambda kind: kind.rollback.treatment is Treatment.GOVERNS)
    events = log.events().exclude(event_type__in=governing)
    if selection.session_id:
        own_stream = Q(stream_id=f"session:{selection.session_id}")
        events = events.filter(Q(session_id=selection.session_id) | own_stream)
    if selection.actor:
        events = events.filter(actor=selection.actor)
    if selection.source:
        events = events.filter(source=selection.source)
    if not selection.include_people and selection.source not in PERSONS_DOORS:
        events = events.exclude(source__in=PERSONS_DOORS)
    if isinstance(selection.since, int):
        events = events.window(after=selection.since - 1)
    elif selection.since is not None:
        events = events.window(since=clock.to_text(selection.since))
    if isinstance(selection.until, int):
        events = events.window(up_to=selection.until)
    elif selection.until is not None:
        events = events.window(until=clock.to_text(selection.until))
    return events


def listed(ids: Iterable[int]) -> str:
    """Return ids as the parameter of ``IDS``, in order."""
    return json_list(sorted(ids))


def find_rollback(rollback_id: int) -> Rollback:
    """Return a roll-back.

    Raises:
        NotFound: no roll-back has this id.
    """
    rollback: Rollback | None = Rollback.objects.filter(id=rollback_id).first()
    if rollback is None:
        raise NotFound(f"there is no roll-back #{rollback_id} in this store; list roll-backs to see their ids")
    return rollback


def list_rollbacks(*, command: RollbackList) -> Listing:
    """Return a page of roll-backs, latest first."""
    fields = {"id", "action"} if command.compact else None

    def views(rollbacks: Sequence[Rollback]) -> list[dict[str, Any]]:
        return [view(rollback).model_dump(mode="json", include=fields) for rollback in rollbacks]

    return newest_first(Rollback.objects.all(), command, views, rollback_line)


def view(rollback: Rollback) -> RollbackView:
    """Return a roll-back in the form that callers get."""
    names = set(RollbackView.model_fields) - {"counts", "left", "left_count", "undone_left"}
    return RollbackView(
        **{name: getattr(rollback, name) for name in names},
        counts=dict(Counter(step["do"] for step in rollback.steps)),
        left=rollback.left[:SHOWN],
        left_count=len(rollback.left),
        undone_left=rollback.undone_left[:SHOWN],
    )


def rollback_line(rollback: dict[str, Any]) -> str:
    """Return a roll-back as one line."""
    if "selection" not in rollback:
        return f"#{rollback['id']} {rollback['action']}"
    filters = ", ".join(f"{name}={value}" for name, value in rollback["selection"].items())
    line = f"#{rollback['id']} {clock.minute(rollback['made_at'])} {rollback['action']} of {filters}: "
    line += ", ".join(f"{count} × {do}" for do, count in rollback["counts"].items())
    if rollback["undone_at"]:
        line += f" (undone by {rollback['undone_by']})"
    if rollback["reason"]:
        line += f": {rollback['reason']}"
    return line
