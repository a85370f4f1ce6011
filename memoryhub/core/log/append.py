"""Append events: check rights and guards, sanitise, chain, insert and project in one transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
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
from memoryhub.core.secrets.remembered import store_pending
from memoryhub.core.secrets.repeats import RULE as REPEATED
from memoryhub.core.secrets.sanitize import sanitize, sanitize_text
from memoryhub.core.secrets.shapes import Shape, payload_shape
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import STORE_PREFIX, require_current_alias
from memoryhub.core.stores.store import Scope, StoreId, current_store

P = TypeVar("P", bound=Payload)

COLUMNS = (*HEADER, "payload_json", "salt", "payload_digest", "chain_digest")
_INSERT = f"INSERT INTO raw_events ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"


# A validated and sanitised payload. Only ``prepare`` creates one, and only a draft can be appended.
@dataclass(frozen=True, slots=True)
class Draft(Generic[P]):
    type: EventType[P]
    payload: P
    # JSON data; only the fields that were set.
    data: dict[str, Any]
    # The types of the secrets that were masked, for the answer to the caller.
    redactions: tuple[str, ...]


def prepare(event_type: EventType[P], payload: P, shape: Shape | None = None) -> Draft[P]:
    """Sanitise all free text of ``payload``; services compare and store the draft's payload.

    Values that the hub generated, such as digests and times, are left unchanged (see ``Generated``), unless ``shape``
    names other parts of the payload.

    Raises:
        Invalid: the sanitised payload no longer fits the schema, for example because the title is empty.
    """
    raw = payload.model_dump(mode="json", exclude_unset=True)
    clean, findings = sanitize(raw, shape or payload_shape(event_type.schema))
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
    def __init__(self, store: StoreId) -> None:
        self.store = store
        self.start, self.digest = end_of_log()
        self.position = self.start


Guard = Callable[[EventType[Any], Origin], Origin]
_guards: list[Guard] = []


def guard(function: Guard) -> Guard:
    """Register a function that is called before every append, with the event type and the origin.

    It returns the origin to use. An exception reaches the caller, and nothing is written.
    """
    _guards.append(function)
    return function


def _admitted(event_type: EventType[Any], store: StoreId) -> Origin:
    # Checked here and not only in each interface, so that a new route or tool cannot forget it (decision 23).
    demand(event_type.act)
    if store.scope is not Scope.PROJECT:
        demand_hub()
    # Guards enforce turns in the same place (decision 9).
    origin = current_origin()
    for check in _guards:
        origin = check(event_type, origin)
    return origin


_head: ContextVar[_Head | None] = ContextVar("log_head", default=None)


@contextmanager
def transaction(*, anchored: bool = True) -> Iterator[None]:
    """Hold the store's write lock; all appends inside are committed together or not at all.

    Nested blocks join the outer one. The anchor moves once, after the outermost commit.

    Args:
        anchored: whether to check that the log matches its anchor first.

    Raises:
        Forbidden: the current store is a view of the past.
        Damaged: the log does not match its anchor.
    """
    if _head.get() is not None:
        yield
        return
    alias = require_current_alias()
    if alias.startswith(f"{STORE_PREFIX}{Scope.VIEW}:"):
        raise Forbidden("a view of the past is read-only; leave out as_of to write")
    with django_transaction.atomic(using=alias), rows.gathering(), appending_to(current_store()) as head:
        if anchored:
            # Under the write lock: no other process can commit in between (decision 38).
            require_anchored((head.position, head.digest))
        yield


@contextmanager
def appending_to(store: StoreId) -> Iterator[_Head]:
    """Append to ``store``'s log over the current connection; requires an open transaction."""
    head = _Head(store)
    token = _head.set(head)
    try:
        yield head
    finally:
        _head.reset(token)
    if head.position > head.start:
        anchored = (head.store, head.position, head.digest)
        django_transaction.on_commit(lambda: advance_anchor(*anchored), using=require_current_alias())


def append(draft: Draft[P], *, stream: str = "", entity: str = "", idempotency_key: str | None = None) -> Event[P]:
    """Append one event and apply its projectors. Requires an open ``transaction``.

    Args:
        draft: the result of ``prepare``.
        stream: an existing stream, such as ``memory:412``.
        entity: instead of ``stream``: the type of the entity that this event creates; its stream is
            ``<entity>:<position>``.
        idempotency_key: must be unused; callers check with ``find_by_key`` first.

    Raises:
        Conflict: the key is already used.
    """
    head = _head.get()
    if head is None:
        raise RuntimeError("append() needs an open log.transaction()")
    origin = _admitted(draft.type, head.store)
    position = head.position + 1  # after the guards: they may append events of their own
    event = _event(draft, position, stream or f"{entity}:{position}", origin, new_stream=not stream)
    head.digest = _insert(event, draft.data, head, origin, _checked_key(idempotency_key))
    head.position = position
    store_pending()
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


# The header of an event of another log; positions in its stream's name are those of this log.
@dataclass(frozen=True, slots=True)
class CopiedHeader:
    event_id: str
    session_id: str
    turn_id: str
    stream_id: str
    # 0 for the next one
    stream_seq: int
    version: int
    occurred_at: str
    actor: str
    source: str
    trace_id: str
    idempotency_key: str | None


def append_copy(draft: Draft[P] | EventType[P], header: CopiedHeader, *, erased_digest: str = "") -> Event[P]:
    """Append an event of another log, with its own time and origin, and apply its projectors.

    Guards are not asked: its turn was open where it happened. An idempotency key that is taken here is left out.

    Args:
        draft: the result of ``prepare``; the event's type if its payload was erased.
        header: checked by the caller, except for secrets.
        erased_digest: of the payload that was erased.
    """
    head = _head.get()
    if head is None:
        raise RuntimeError("append_copy() needs an open log.transaction()")
    origin = Origin(trace_id=_name("trace_id", header.trace_id))
    event = _copied(draft, header, head.position + 1)
    data = draft.data if isinstance(draft, Draft) else erased_digest
    head.digest = _insert(event, data, head, origin, _free_key(header.idempotency_key, head))
    head.position = event.position
    store_pending()
    apply(event)
    return event


def _free_key(key: str | None, head: _Head) -> str | None:
    is_taken = bool(key and head.start and rows.fetch(_KEY_TAKEN, [key]))
    return _checked_name("idempotency_key", key, allowed="") if key and not is_taken else None


def _copied(draft: Draft[P] | EventType[P], header: CopiedHeader, position: int) -> Event[P]:
    return Event(
        position=position,
        event_id=header.event_id,
        type=draft.type.name if isinstance(draft, Draft) else draft.name,
        version=header.version,
        stream_id=_checked_stream(header.stream_id),
        stream_seq=header.stream_seq or _next_in(header.stream_id),
        session_id=_name("session_id", header.session_id),
        turn_id=_name("turn_id", header.turn_id),
        actor=_name("actor", header.actor),
        source=header.source,
        occurred_text=header.occurred_at,
        payload=draft.payload if isinstance(draft, Draft) else None,  # type: ignore[arg-type]
    )


# A digest can look like a secret.
_GENERATED_STREAM = re.compile(r"[a-z]+(?::[0-9a-f]{1,64})?")


def _checked_stream(name: str) -> str:
    return name if _GENERATED_STREAM.fullmatch(name) else _name("stream_id", name)


@lru_cache(maxsize=4096)
def _name(field: str, value: str) -> str:
    return _checked_name(field, value)


def _next_in(stream: str) -> int:
    found = rows.fetch("SELECT max(stream_seq) FROM raw_events WHERE stream_id = %s", [stream])
    return (found[0][0] or 0) + 1


# ``data`` is the digest of a payload that was erased before the event was copied.
def _insert(event: Event[Any], data: dict[str, Any] | str, head: _Head, origin: Origin, key: str | None) -> str:
    payload_json = salt = None
    if isinstance(data, dict):
        payload_json, salt = new_payload_json(data), ids.random_bytes(16).hex()
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
    payload = payload_digest(salt, payload_json) if salt and payload_json else str(data)
    chained = chain_digest(head.digest, header, payload)
    rows.put("raw_events", _INSERT, [*header, payload_json, salt, payload, chained])
    return chained


# Of a session or an actor, only the form counts: it must not end because a text gave its id as the value of a cookie.
def _checked_name(field: str, value: str, *, allowed: str = REPEATED) -> str:
    # Refused rather than masked: two different names could become the same tag, and headers cannot be redacted
    # (decision 28).
    clean, findings = sanitize_text(value)
    has_secret = any(finding.rule != allowed for finding in findings)
    if has_secret or (clean != value and not findings) or len(value) > 200:
        raise Invalid(f"{field} must have at most 200 characters and contain no secret")
    return value


_KEY_TAKEN = "SELECT 1 FROM raw_events WHERE idempotency_key = %s"


def _checked_key(key: str | None) -> str | None:
    if key is None:
        return None
    if rows.fetch(_KEY_TAKEN, [key]):
        raise Conflict("idempotency_key is already used by another event; use a new one")
    return _checked_name("idempotency_key", key, allowed="")


def find_by_key(key: str | None, *types: EventType[Any]) -> RawEvent | None:
    """Return the event appended under an idempotency key; Conflict if it has none of the ``types``."""
    if key is None:
        return None
    event: RawEvent | None = RawEvent.objects.filter(idempotency_key=key).first()
    if event and types and event.event_type not in {event_type.name for event_type in types}:
        raise Conflict(
            f"idempotency_key is already used by a {event.event_type} event; use a new one", position=event.position
        )
    return event
