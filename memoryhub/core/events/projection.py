"""The registry of the projectors that apply events to the read models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.apps import apps
from django.db import models, transaction

from memoryhub.core import clock
from memoryhub.core.events.event_types import EventType
from memoryhub.core.models import ProjectionOffset, RawEvent
from memoryhub.core.schemas import Payload
from memoryhub.core.stores.routing import STORE_APPS, require_current_alias

P = TypeVar("P", bound=Payload)


@dataclass(frozen=True, slots=True)
class Event(Generic[P]):
    """An event as projectors and callers see it. ``payload`` is None once erased."""

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
        """When it happened, in UTC."""
        return clock.from_text(self.occurred_text)


Projector = Callable[[Event[Any]], None]
Check = Callable[[Sequence[int] | None], list[int]]

_projectors: dict[str, list[Projector]] = {}
_after_each: list[Projector] = []
_by_header: list[Projector] = []
_after_rebuild: list[Callable[[], None]] = []
_companions: dict[str, tuple[str, ...]] = {}
_text_caches: dict[str, str] = {}
_checks: dict[str, Check] = {}


def projects(*event_types: EventType[Any]) -> Callable[[Projector], Projector]:
    """Register the decorated function as a projector of these types, after those that are registered already."""

    def register(function: Projector) -> Projector:
        for each in event_types:
            _projectors.setdefault(each.name, []).append(function)
        return function

    return register


def project_every_event(function: Projector) -> Projector:
    """Register a projector that runs after all others on every event, such as the search index."""
    _after_each.append(function)
    return function


def project_headers(function: Projector) -> Projector:
    """Register a projector that needs no payload; it runs last on every event, and on erased ones too."""
    _by_header.append(function)
    return function


def after_rebuild(function: Callable[[], None]) -> Callable[[], None]:
    """Register a step that runs in a store whose read models were made anew: forgetting what was known of it, say."""
    _after_rebuild.append(function)
    return function


def finish_rebuild() -> None:
    """Run the registered steps in the current store, by one transaction: only its beginning waits fairly for others."""
    with transaction.atomic(using=require_current_alias()):
        for step in _after_rebuild:
            step()


def define_companions(table: str, *companions: str) -> None:
    """Register tables that no model describes and that go with a read model's, such as those of a full-text index."""
    _companions[table] = companions


def companions_of(table: str) -> tuple[str, ...]:
    """Return the tables that go with a read model's."""
    return _companions.get(table, ())


def define_check(what: str, check: Check) -> None:
    """Register how to compare something that is made of read models, such as an index, with what it should be.

    Args:
        what: its name in a sentence.
        check: takes the ids of a sample, None for all; returns those that differ. It runs in a copy that was made from
            the log, with the store attached as ``copy.LIVE``.
    """
    _checks[what] = check


def checks() -> dict[str, Check]:
    """Return the registered checks, by the names of what they are about."""
    return dict(_checks)


def define_text_cache(table: str, column: str) -> None:
    """Register a table that is no read model, but is made of texts; ``column`` has the id of the text's entity."""
    _text_caches[table] = column


def text_caches() -> dict[str, str]:
    """Return the tables that are made of texts, each with its column of ids."""
    return dict(_text_caches)


def apply(event: Event[Any]) -> None:
    """Apply one event to all read models, inside the caller's transaction; of an erased one, its header only."""
    erased = event.payload is None
    projectors = [] if erased else [*_projectors.get(event.type, ()), *_after_each]
    for projector in [*projectors, *_by_header]:
        projector(event)


def models_beside_log() -> Iterable[type[models.Model]]:
    """Yield every model of a store that is neither the log nor made from it."""
    made = set(read_models())
    for label in STORE_APPS:
        for model in apps.get_app_config(label).get_models():
            if model is not RawEvent and model not in made and not model._meta.proxy:
                yield model


def read_models() -> Iterable[type[models.Model]]:
    """Yield every model that is made from events, lower apps first."""
    for label in STORE_APPS:
        for model in apps.get_app_config(label).get_models():
            made = model not in (RawEvent, ProjectionOffset) and getattr(model, "from_log", True)
            if made and not model._meta.proxy:
                yield model
