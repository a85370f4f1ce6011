"""Placing and lifting holds."""

from __future__ import annotations

from governance.models import Hold
from governance.retention.events import HOLD_LIFTED, HOLD_PLACED, HoldLifted, HoldPlaced
from governance.retention.schemas import HoldLift, HoldPlace, HoldView
from governance.retention.selectors import find_hold, view_hold
from memoryhub.core import log
from memoryhub.core.errors import Conflict, NotFound
from memoryhub.core.models import RawEvent

EVERYTHING = "*"


def place_hold(*, command: HoldPlace) -> HoldView:
    """Keep a stream, all of a session, or the whole store, whatever its age, until the hold is lifted.

    Raises:
        NotFound: nothing of that name is in this store, or all of it is erased.
        Forbidden: the caller may not.
    """
    draft = log.prepare(HOLD_PLACED, HoldPlaced(stream_id=command.stream_id.strip(), reason=command.reason))
    with log.transaction():
        first = log.find_by_key(command.idempotency_key, HOLD_PLACED)
        if first:
            return view_hold(find_hold(first.position))
        _require_stream(draft.payload.stream_id)
        event = log.append(draft, entity="hold", idempotency_key=command.idempotency_key)
        return view_hold(find_hold(event.position))


def lift_hold(*, command: HoldLift) -> HoldView:
    """End a hold; what it kept goes as its age says, from the next run on.

    Raises:
        NotFound: there is no such hold.
        Conflict: it was lifted before.
        Forbidden: the caller may not.
    """
    with log.transaction():
        hold = find_hold(command.id)
        _require_in_force(hold)
        draft = log.prepare(HOLD_LIFTED, HoldLifted(hold_id=hold.id, reason=command.reason))
        log.append(draft, stream=f"hold:{hold.id}")
        return view_hold(find_hold(hold.id))


def _require_in_force(hold: Hold) -> None:
    if hold.lifted_at is not None:
        raise Conflict(f"hold #{hold.id} was lifted by {hold.lifted_by} already", id=hold.id)


def _require_stream(stream: str) -> None:
    if stream == EVERYTHING:
        return
    kind, _, name = stream.partition(":")
    if RawEvent.objects.filter(stream_id=stream, payload_json__isnull=False).exists():
        return
    if kind == "session" and name and RawEvent.objects.filter(session_id=name).exists():
        return
    raise NotFound(
        f"there is nothing to hold called {stream[:80]!r}; name a stream such as memory:12, decision:7 or "
        "session:<name>, or * for all",
        stream_id=stream,
    )
