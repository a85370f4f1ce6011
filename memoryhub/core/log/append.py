"""Append events: check rights and guards, sanitise, chain, insert and project in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from django.db import DatabaseError, IntegrityError
from django.db import transaction as django_transaction

from memoryhub.core import clock, ids
from memoryhub.core.backends.selected import faults
from memoryhub.core.errors import ConflictError, Damaged, Forbidden, Invalid, OutcomeUnknown
from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.projection import Event, apply
from memoryhub.core.log.anchor import advance_anchor, require_anchored
from memoryhub.core.log.digests import HEADER, chain_digest, new_payload_json, payload_digest
from memoryhub.core.log.read import StoredEvent, events, read_models_ahead
from memoryhub.core.log.read import head as end_of_log
from memoryhub.core.origin import Origin, current_origin
from memoryhub.core.permissions import demand
from memoryhub.core.schemas import Payload
from memoryhub.core.secrets.cleaning import RULE as REPEATED
from memoryhub.core.secrets.context import store_pending
from memoryhub.core.secrets.sanitize import Shape, payload_shape, sanitize
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import STORE_PREFIX, require_current_alias
from memoryhub.core.stores.store import Scope, StoreId, current_store

P = TypeVar("P", bound=Payload)

COLUMNS = (*HEADER, "payload_json", "salt", "payload_digest", "chain_digest")
INSERT_EVENT = f"INSERT INTO raw_events ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"


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
    clean, findings = sanitize(raw, shape or payload_shape(event_type.schema), by_pack_only=event_type.by_pack_only)
    if clean != raw:
        from pydantic import ValidationError

        from memoryhub.core.validation import explain

        try:
            payload = event_type.schema.model_validate(clean)
        except ValidationError as error:
            raise Invalid(f"after removing private text and secrets, {explain(error)}") from error
    return Draft(event_type, payload, clean, tuple(sorted({finding.type for finding in findings})))


class Head:
    def __init__(self, store: StoreId) -> None:
        self.store = store
        self.start, self.digest = end_of_log()
        self.position = self.start
        self.finishing: list[Callable[[], None]] = []
        # The idempotency keys of the new events
        self.keys: list[str] = []
        # The last number in each stream that has new events
        self.numbers: dict[str, int] = {}
        # Names of sessions, turns and actors that hold no secret
        self.checked: set[tuple[str, str, bool]] = set()


Guard = Callable[[EventType[Any], Origin], Origin]
_guards: list[Guard] = []


def guard(function: Guard) -> Guard:
    """Register a function that is called before every append, with the event type and the origin.

    It returns the origin to use. An exception reaches the caller, and nothing is written.
    """
    _guards.append(function)
    return function


Follower = Callable[[Event[Any]], None]
_followers: dict[str, list[Follower]] = {}


def on_append(event_type: EventType[Any]) -> Callable[[Follower], Follower]:
    """Register a function that is called with every new event of a type, in its transaction.

    It runs before the event's projectors, so the read models are those before the event. An exception reaches the
    caller, and nothing is written. Events that are copied from another log, or applied again, are not new.
    """

    def register(function: Follower) -> Follower:
        _followers.setdefault(event_type.name, []).append(function)
        return function

    return register


def before_commit(function: Callable[[], None]) -> None:
    """Call a function when everything in the open transaction is written, before its commit.

    For what is kept beside the store: an exception still undoes the transaction, and a refusal leaves no trace.
    """
    open_head().finishing.append(function)


_head: ContextVar[Head | None] = ContextVar("log_head", default=None)


def open_head() -> Head:
    head = _head.get()
    if head is None:
        raise RuntimeError("appending needs an open log.transaction()")
    return head


@contextmanager
def transaction(*, anchored: bool = True) -> Iterator[None]:
    """Hold the store's write lock; all appends inside are committed together or not at all.

    Nested blocks join the outer one. The anchor moves once, after the outermost commit.

    Args:
        anchored: whether to check that the log matches its anchor first.

    Raises:
        Forbidden: the current store is a view of the past.
        Damaged: the log does not match its anchor, or the read models show that its tail was cut.
        OutcomeUnknown: the commit failed so that the events may be stored or not.
    """
    if _head.get() is not None:
        yield
        return
    alias = require_current_alias()
    if alias.startswith(f"{STORE_PREFIX}{Scope.VIEW}:"):
        raise Forbidden("a view of the past is read-only; leave out as_of to write")
    committing: Head | None = None
    try:
        with django_transaction.atomic(using=alias):
            with rows.gathering(), appending_to(current_store()) as head:
                if anchored:
                    # Under the write lock: no other process can commit in between (decision 38).
                    require_anchored((head.position, head.digest))
                yield
            committing = head
    except IntegrityError as error:
        # The new event's position is the id of a row already, if the log's tail was cut together with its anchor
        _require_not_ahead(error)
        raise
    except DatabaseError as error:
        if committing and committing.position > committing.start and faults.may_have_committed(error):
            raise _outcome_unknown(committing, error) from error
        raise


def _outcome_unknown(head: Head, error: DatabaseError) -> OutcomeUnknown:
    how = "search for it before you repeat the call; a call with an idempotency_key can be repeated"
    data = {"store": head.store.name}
    if head.keys:
        how = f"repeat the call with idempotency_key={head.keys[0]}: then it is stored once"
        data["idempotency_key"] = head.keys[0]
    message = f"memory database unavailable: {error}, while it stored the write, which may be stored or not; {how}"
    return OutcomeUnknown(message, **data)


def _require_not_ahead(cause: Exception | None = None) -> None:
    if ahead := read_models_ahead():
        raise Damaged(f"nothing was written: {ahead}; run `memory-hub doctor`", store=current_store().name) from cause


@contextmanager
def appending_to(store: StoreId) -> Iterator[Head]:
    """Append to ``store``'s log over the current connection; requires an open transaction."""
    head = Head(store)
    token = _head.set(head)
    try:
        yield head
        for finish in head.finishing:
            finish()
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
        ConflictError: the key is already used.
    """
    head = open_head()
    # Checked here and not only in each interface, so that a new route or tool cannot forget it (decision 23).
    demand(draft.type.act, place=head.store.place)
    origin = current_origin()
    for check in _guards:  # such as that of turns (decision 9)
        origin = check(draft.type, origin)
    position = head.position + 1  # after the guards: they may append events of their own
    number = stream.rpartition(":")[2]
    if number.isdecimal() and int(number) >= position:
        _require_not_ahead()  # an entity whose events were cut; what changes it could not be applied in a rebuild
    event = _new_event(draft, head, stream or f"{entity}:{position}", origin, new_stream=not stream)
    if idempotency_key is not None:
        if rows.fetch(KEY_TAKEN, [idempotency_key]):
            raise ConflictError("idempotency_key is already used by another event; use a new one")
        require_key(idempotency_key)
    head.digest = insert_event(event, draft.data, head, origin, idempotency_key)
    head.position = position
    if idempotency_key:
        head.keys.append(idempotency_key)
    store_pending()
    for follow in _followers.get(event.type, ()):
        follow(event)
    apply(event)
    return event


def _new_event(draft: Draft[P], head: Head, stream: str, origin: Origin, *, new_stream: bool) -> Event[P]:
    # A rule that matches a person's name must not keep them from changing it back
    checked = partial(checked_once, head, by_pack_only=draft.type.by_pack_only)
    return Event(
        position=head.position + 1,
        event_id=ids.uuid7(),
        type=draft.type.name,
        version=draft.type.version,
        stream_id=stream,
        stream_seq=1 if new_stream else next_in(stream, head),
        session_id=checked("session_id", origin.session_id),
        turn_id=checked("turn_id", origin.turn_id),
        actor=checked("actor", origin.actor),
        source=origin.source,
        occurred_text=clock.to_text(clock.now()),
        payload=draft.payload,
    )


def checked_once(head: Head, field: str, value: str, *, by_pack_only: bool = False) -> str:
    check = (field, value, by_pack_only)
    if check not in head.checked:
        checked_name(field, value, by_pack_only=by_pack_only)
        head.checked.add(check)
    return value


def next_in(stream: str, head: Head) -> int:
    if stream in head.numbers:
        return head.numbers[stream] + 1
    ((last,),) = rows.fetch("SELECT max(stream_seq) FROM raw_events WHERE stream_id = %s", [stream])
    return (last or 0) + 1


# ``data`` is the digest of a payload that was erased before the event was copied.
def insert_event(event: Event[Any], data: dict[str, Any] | str, head: Head, origin: Origin, key: str | None) -> str:
    payload_json = salt = None
    digest = data
    if isinstance(data, dict):
        payload_json = new_payload_json(data)
        salt = ids.random_bytes(16).hex()
        digest = payload_digest(salt, payload_json)
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
    chained = chain_digest(head.digest, header, str(digest))
    rows.put("raw_events", INSERT_EVENT, [*header, payload_json, salt, digest, chained])
    head.numbers[event.stream_id] = event.stream_seq
    return chained


# ``allowed`` is a rule that may match: a session must not end because a text gave its id as the value of a cookie.
def checked_name(field: str, value: str, *, allowed: str = REPEATED, by_pack_only: bool = False) -> str:
    # Refused rather than masked: two different names could become the same tag, and headers cannot be redacted
    # (decision 28).
    clean, findings = sanitize(value, by_pack_only=by_pack_only)
    has_secret = any(finding.rule != allowed for finding in findings)
    if has_secret or (clean != value and not findings) or len(value) > 200:
        raise Invalid(f"{field} must have at most 200 characters and contain no secret")
    return value


KEY_TAKEN = "SELECT 1 FROM raw_events WHERE idempotency_key = %s"


def require_key(key: str | None) -> None:
    """Raise Invalid unless the log takes this idempotency key; for a store that does not exist yet."""
    if key is not None:
        checked_name("idempotency_key", key, allowed="")


def find_by_key(key: str | None, *types: EventType[Any]) -> StoredEvent | None:
    """Return the event appended under an idempotency key; Conflict if it has none of the ``types``."""
    if key is None:
        return None
    event = events().with_key(key).first()
    if event and types and event.event_type not in {event_type.name for event_type in types}:
        raise ConflictError(
            f"idempotency_key is already used by a {event.event_type} event; use a new one", position=event.position
        )
    return event
