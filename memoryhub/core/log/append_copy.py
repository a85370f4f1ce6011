"""Append events of another log, with their own times and origins (decision 64)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.projection import Event, apply
from memoryhub.core.log.append import KEY_TAKEN, Draft, Head, checked_name, insert_event, next_in, open_head
from memoryhub.core.origin import Origin
from memoryhub.core.schemas import Payload
from memoryhub.core.secrets.remembered import store_pending
from memoryhub.core.stores import rows

P = TypeVar("P", bound=Payload)


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


def append_copy(
    draft: Draft[P] | EventType[P], header: CopiedHeader, *, erased_digest: str = "", is_void: bool = False
) -> Event[P]:
    """Append an event of another log, with its own time and origin, and apply its projectors.

    Guards are not asked: its turn was open where it happened. An idempotency key that is taken here is left out.

    Args:
        draft: the result of ``prepare``; the event's type if its payload was erased.
        header: checked by the caller, except for secrets.
        erased_digest: of the payload that was erased.
        is_void: whether the event counts no more, so that no projector is applied.
    """
    head = open_head()
    origin = Origin(trace_id=_name("trace_id", header.trace_id))
    event = _copied(draft, header, head.position + 1)
    data = draft.data if isinstance(draft, Draft) else erased_digest
    head.digest = insert_event(event, data, head, origin, _free_key(header.idempotency_key, head))
    head.position = event.position
    store_pending()
    if not is_void:
        apply(event)
    return event


def _free_key(key: str | None, head: Head) -> str | None:
    is_taken = bool(key and head.start and rows.fetch(KEY_TAKEN, [key]))
    return checked_name("idempotency_key", key, allowed="") if key and not is_taken else None


def _copied(draft: Draft[P] | EventType[P], header: CopiedHeader, position: int) -> Event[P]:
    return Event(
        position=position,
        event_id=header.event_id,
        type=draft.type.name if isinstance(draft, Draft) else draft.name,
        version=header.version,
        stream_id=_checked_stream(header.stream_id),
        stream_seq=header.stream_seq or next_in(header.stream_id),
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
    return checked_name(field, value)
