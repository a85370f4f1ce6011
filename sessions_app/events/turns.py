"""What can happen to a turn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from memoryhub.core.event_types import Retention, TurnRule, define_event
from memoryhub.core.rollback import NOTHING_DEPENDS, sets_aside
from memoryhub.core.schemas import Payload, Sha256
from sessions_app.events.sessions import SESSIONS


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


def _ended_about(payload: Mapping[str, Any]) -> str:
    return str(payload.get("summary", ""))


def _expired_about(_payload: Mapping[str, Any]) -> str:
    return "Nothing came for too long; the turn is incomplete"


_BEGUN_OR_ENDED = sets_aside("turns", "Turns begun or ended", order=200)

_define = partial(define_event, group=SESSIONS, retention=Retention.KEPT, changes_stream=False, turn=TurnRule.NONE)

TURN_BEGAN = _define(
    "turn.began", TurnBegan, label="Turn began", rollback=_BEGUN_OR_ENDED, nouns=("turn", "turns"), is_tallied=True
)
TURN_ENDED = _define("turn.ended", TurnEnded, label="Turn summary", rollback=_BEGUN_OR_ENDED, about=_ended_about)
TURN_EXPIRED = _define(
    "turn.expired",
    TurnExpired,
    label="Turn incomplete",
    rollback=NOTHING_DEPENDS,
    own_icon="clock",
    about=_expired_about,
)
