"""Appending: validate, sanitise, chain, insert and project, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import transaction as django_transaction

from memoryhub.core import clock, ids
from memoryhub.core.errors import Conflict, Forbidden, Invalid
from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.projection import Event, apply
from memoryhub.core.log.anchor import advance_anchor, require_anchored
from memoryhub.core.log.digests import HEADER, chain_digest, new_payload_json, payload_digest
from memoryhub.core.log.read import head as end_of_log
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import Origin, current_origin
from memoryhub.core.permissions import demand, demand_hub
from memoryhub.core.schemas import Payload
from memoryhub.core.secrets.sanitize import sanitize, sanitize_text
from memoryhub.core.secrets.shapes import payload_shape
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import STORE_PREFIX, require_current_alias
from memoryhub.core.stores.store import Scope, StoreId, current_store

P = TypeVar("P", bound=Payload)

COLUMNS = (*HEADER, "payload_json", "salt", "payload_digest", "chain_digest")
"""The columns of the log."""
_INSERT = f"INSERT INTO raw_events ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"


@dataclass(frozen=True, slots=True)
class Draft(Generic[P]):
    """A payload that was validated and sanitised; only ``prepare`` makes one, and only a draft can be appended."""

    type: EventType[P]
    payload: P
    data: dict[str, Any]
    """The payload as JSON data, with only what was set."""
    redactions: tuple[str, ...]
    """The types of what was redacted, for the answer to the caller."""


def prepare(event_type: EventType[P], payload: P) -> Draft[P]:
    """Sanitise every text of ``payload``. What services compare and store is the draft's payload.

    Only text is sanitised: digests and times that the hub generated itself are left as they are, see ``Generated``.

    Raises:
        Invalid: what is left after sanitising no longer fits the event's schema (an empty title, say).
    """
    raw = payload.model_dump(mode="json", exclude_unset=True)
    clean, findings = sanitize(raw, payload_shape(event_type.schema))
    if clean != raw:
        payload = _validated(event_type, clean)
    return Draft(event_type, payload, clean, tuple(sorted({finding.type for finding in findings})))


def _validated(event_type: EventType[P], data: Mapping[str, Any]) -> P:
    from pydantic import ValidationError

    from memoryhub.core.validation import explain

    try:
        return event_type.schema.model_validate(data)
    except ValidationError as error:
        raise Invalid(f"after removing private text and secrets, {explain(error)}") from error


class _Head:
    """The end of the log inside one transaction."""

    def __init__(self, store: StoreId) -> None:
        self.store = store
        self.start, self.digest = end_of_log()
        self.position = self.start


Guard = Callable[[EventType[Any], Origin], Origin]
_guards: list[Guard] = []


def guard(function: Guard) -> Guard:
    """Register a guard: it is asked before every append, and may refuse it or correct its origin.

    It takes the event's type and the origin, and returns the origin to use. What it raises reaches the caller, and
    nothing is written.
    """
    _guards.append(function)
    return function


def _admitted(event_type: EventType[Any], store: StoreId) -> Origin:
    demand(event_type.act)
    if store.scope is not Scope.PROJECT:
        demand_hub()
    origin = current_origin()
    for each in _guards:
        origin = each(event_type, origin)
    return origin


_head: ContextVar[_Head | None] = ContextVar("log_head", default=None)


@contextmanager
def transaction(*, anchored: bool = True) -> Iterator[None]:
    """Hold the store's write lock; all appends inside are kept together or not at all.

    Joins the transaction that is open already. The anchor moves once, after the outermost commit.

    Args:
        anchored: whether the log must be the one that was anchored.

    Raises:
        Forbidden: the current store is a view of the past.
        Damaged: the log is not the one that was anchored.
    """
    if _head.get() is not None:
        yield
        return
    alias = require_current_alias()
    if alias.startswith(f"{STORE_PREFIX}{Scope.VIEW}:"):
        raise Forbidden("this is how the store stood in the past, and the past cannot be written; leave as_of out")
    with django_transaction.atomic(using=alias):
        if anchored:
            require_anchored()  # under the write lock, or another process might commit in between
        with rows.gathering(), appending_to(current_store()):
            yield


@contextmanager
def appending_to(store: StoreId) -> Iterator[None]:
    """Let appends go to the current connection, as the next events of ``store``'s log; needs an open transaction.

    The anchor moves after the outermost commit.
    """
    head = _Head(store)
    token = _head.set(head)
    try:
        yield
    finally:
        _head.reset(token)
    if head.position > head.start:
        anchored = (head.store, head.position, head.digest)
        django_transaction.on_commit(lambda: advance_anchor(*anchored), using=require_current_alias())


def append(draft: Draft[P], *, stream: str = "", entity: str = "", idempotency_key: str | None = None) -> Event[P]:
    """Append one event and apply its projectors. Needs an open ``transaction``.

    Args:
        draft: what ``prepare`` made.
        stream: the stream that goes on, such as ``memory:412``.
        entity: instead of ``stream``, the kind of thing that this event creates: its stream is named by its position.
        idempotency_key: refused when any event has it already; callers look with ``find_by_key`` first.

    Raises:
        Conflict: the key is taken.
    """
    head = _head.get()
    if head is None:
        raise RuntimeError("append() needs an open log.transaction()")
    origin = _admitted(draft.type, head.store)
    position = head.position + 1  # after the guards, which may append what must come before
    event = _event(draft, position, stream or f"{entity}:{position}", origin, new_stream=not stream)
    head.digest = _insert(event, draft.data, head, origin, _checked_key(idempotency_key))
    head.position = position
    apply(event)
    return event


def _event(draft: Draft[P], position: int, stream: str, origin: Origin, *, new_stream: bool) -> Event[P]:
    return Event(
        position=position,
        event_id=ids.uuid7(),
        type=draft.type.name,
        version=draft.type.version,
        stream_id=stream,
        stream_seq=1 if new_stream else _next_in(stream),
        session_id=_checked_name("session_id", origin.session_id),
        turn_id=_checked_name("turn_id", origin.turn_id),
        actor=_checked_name("actor", origin.actor),
        source=origin.source,
        occurred_text=clock.to_text(clock.now()),
        payload=draft.payload,
    )


def _next_in(stream: str) -> int:
    found = rows.fetch("SELECT max(stream_seq) FROM raw_events WHERE stream_id = %s", [stream])
    return (found[0][0] or 0) + 1


def _insert(event: Event[Any], data: dict[str, Any], head: _Head, origin: Origin, key: str | None) -> str:
    payload_json = new_payload_json(data)
    salt = ids.random_bytes(16).hex()
    header = (
        event.position,
        event.event_id,
        head.store.name,
        event.session_id,
        event.turn_id,
        event.stream_id,
        event.stream_seq,
        event.type,
        event.version,
        event.occurred_text,
        event.actor,
        event.source,
        key,
        origin.trace_id,
    )
    payload = payload_digest(salt, payload_json)
    chained = chain_digest(head.digest, header, payload)
    rows.put("raw_events", _INSERT, [*header, payload_json, salt, payload, chained])
    return chained


def _checked_name(field: str, value: str) -> str:
    """Refuse a secret in a name: redacting it would make two names one."""
    clean, findings = sanitize_text(value)
    if findings or clean != value or len(value) > 200:
        raise Invalid(f"{field} must be at most 200 characters and hold no secret")
    return value


def _checked_key(key: str | None) -> str | None:
    if key is None:
        return None
    if rows.fetch("SELECT 1 FROM raw_events WHERE idempotency_key = %s", [key]):
        raise Conflict("idempotency_key is taken by another event; use a new one")
    return _checked_name("idempotency_key", key)


def find_by_key(key: str | None, *types: EventType[Any]) -> RawEvent | None:
    """Return the event that was appended under an idempotency key, if any.

    Raises:
        Conflict: it is not of one of ``types``: the key was used for something else.
    """
    if key is None:
        return None
    event: RawEvent | None = RawEvent.objects.filter(idempotency_key=key).first()
    if event and types and event.event_type not in {each.name for each in types}:
        raise Conflict(
            f"idempotency_key was used for {event.event_type} already; use a new one", position=event.position
        )
    return event
