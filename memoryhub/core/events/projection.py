"""The registry of projectors, which apply events to the read models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.apps import apps
from django.db import models, transaction

from memoryhub.core import clock
from memoryhub.core.events.event_types import EventType, quoted
from memoryhub.core.models import ProjectionOffset, RawEvent
from memoryhub.core.schemas import Payload
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import int_elements
from memoryhub.core.stores.routing import STORE_APPS, require_current_alias

P = TypeVar("P", bound=Payload)


# ``payload`` is None once erased.
@dataclass(frozen=True, slots=True)
class Event(Generic[P]):
    position: int
    event_id: str
    type: str
    version: int
    stream_id: str
    stream_seq: int
    session_id: str
    turn_id: str
    actor: str
    source: str
    occurred_text: str
    payload: P

    @property
    def occurred_at(self) -> datetime:
        return clock.from_text(self.occurred_text)


Projector = Callable[[Event[Any]], None]
Check = Callable[[Sequence[int] | None], list[int]]

_projectors: dict[str, list[Projector]] = {}
_after_each: list[Projector] = []
_by_header: list[Projector] = []
_after_rebuild: list[Callable[[], None]] = []
# By a read model's table: tables without a model that belong to it, such as those of a full-text index
companions: dict[str, tuple[str, ...]] = {}
# Tables that are derived from texts but are not read models, with the column that has the entity's id
text_caches: dict[str, str] = {}
# By what they compare: something derived from read models, such as an index, with its expected content. A check takes
# sampled ids, or None for all, and returns the ids that differ. It runs in a copy built from the log, with the store
# attached as ``LIVE``.
checks: dict[str, Check] = {}
# Types of events whose ``void`` lists positions of events that it has taken back. They need ``removes_text``, so that
# copies and views of the log are built again.
voiding: list[EventType[Any]] = []


def projects(*event_types: EventType[Any]) -> Callable[[Projector], Projector]:
    def register(function: Projector) -> Projector:
        for event_type in event_types:
            _projectors.setdefault(event_type.name, []).append(function)
        return function

    return register


def project_every_event(function: Projector) -> Projector:
    _after_each.append(function)
    return function


def project_headers(function: Projector) -> Projector:
    """Register a projector without need of payloads; it runs last on every event, including erased ones."""
    _by_header.append(function)
    return function


def after_rebuild(function: Callable[[], None]) -> Callable[[], None]:
    _after_rebuild.append(function)
    return function


def finish_rebuild() -> None:
    # One transaction for all steps: only BEGIN IMMEDIATE waits fairly for other writers (decision 7).
    with transaction.atomic(using=require_current_alias()):
        for step in _after_rebuild:
            step()


def void_sql() -> str:
    """Return a SELECT of the positions of events that no read model contains; read models are built without them."""
    listed = int_elements("u.payload_json", "void")
    names = quoted([event_type.name for event_type in voiding])
    return f"SELECT j.value FROM raw_events u, {listed} j WHERE u.event_type IN ({names})"


def void_positions() -> frozenset[int]:
    return frozenset(rows.column(void_sql()))


def apply(event: Event[Any]) -> None:
    """Apply one event to all read models inside the caller's transaction; of an erased event, only its header."""
    if event.payload is not None:
        for projector in _projectors.get(event.type, ()):
            projector(event)
        for projector in _after_each:
            projector(event)
    for projector in _by_header:
        projector(event)


def models_beside_log() -> list[type[models.Model]]:
    """Return every model of a store that is neither the log nor built from it."""
    projected = {RawEvent, *read_models()}
    return [model for model in _store_models() if model not in projected]


def read_models() -> list[type[models.Model]]:
    models_of_log = (RawEvent, ProjectionOffset)
    return [model for model in _store_models() if model not in models_of_log and getattr(model, "from_log", True)]


def _store_models() -> Iterator[type[models.Model]]:
    for label in STORE_APPS:
        yield from (model for model in apps.get_app_config(label).get_models() if not model._meta.proxy)
