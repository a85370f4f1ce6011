"""What can happen to a turn."""

from __future__ import annotations

from typing import Literal

from memoryhub.core.projection import NOTHING_DEPENDS, define_event, sets_aside
from memoryhub.core.schemas import Payload, Sha256


class TurnBegan(Payload):
    """A turn began. Of its token only the hash is known; one that the hub opened itself has none."""

    session_id: str
    turn_id: str
    ack_token_hash: Sha256 | Literal[""] = ""
    ack_seconds: int
    automatic: bool = False


class TurnEnded(Payload):
    """A turn came to its end."""

    session_id: str
    turn_id: str
    summary: str = ""


class TurnExpired(Payload):
    """A turn was left open for longer than its token is good for."""

    session_id: str
    turn_id: str


TURN_BEGAN = define_event("turn.began", TurnBegan, rollback=sets_aside("turns"), changes_stream=False)
TURN_ENDED = define_event("turn.ended", TurnEnded, rollback=sets_aside("turns"), changes_stream=False)
TURN_EXPIRED = define_event("turn.expired", TurnExpired, rollback=NOTHING_DEPENDS, changes_stream=False)
