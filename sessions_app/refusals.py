"""Refusals of calls that need an open turn: each names the next step."""

from __future__ import annotations

from enum import StrEnum

from memoryhub.core import counters
from memoryhub.core.errors import PreconditionFailed


class Refusal(StrEnum):
    NO_TOKEN = "no_token"  # noqa: S105 - the name of a reason
    WRONG_TOKEN = "wrong_token"  # noqa: S105
    OTHER_TURN = "other_turn"
    OTHER_SESSION = "other_session"
    EXPIRED = "expired"
    CLOSED = "closed"
    INCOMPLETE = "incomplete"
    NO_SESSION = "no_session"
    SESSION_ENDED = "session_ended"


_SENTENCES = {
    Refusal.NO_TOKEN: "this needs the ack_token of an open turn; call turn_begin and send the token that it returns",
    Refusal.WRONG_TOKEN: "ack_token is unknown in this project; call turn_begin and send the token that it returns",
    Refusal.OTHER_TURN: "ack_token belongs to another turn; send the one that turn_begin returned for turn {turn!r}",
    Refusal.OTHER_SESSION: "ack_token belongs to session {session!r}; call turn_begin in your own session",
    Refusal.EXPIRED: "ack_token has expired; call turn_begin for a new turn",
    Refusal.CLOSED: "turn {turn!r} has ended; call turn_begin for a new turn",
    Refusal.INCOMPLETE: "turn {turn!r} timed out and is incomplete; call turn_begin for a new turn",
    Refusal.NO_SESSION: "a turn belongs to a session; name its session_id, a new one begins it",
    Refusal.SESSION_ENDED: "session {session!r} is not active; call session_start for a new one",
}

REJECTIONS = counters.define(
    "append_rejections", "Calls that were refused because a turn's precondition failed", "reason"
)


def refuse(reason: Refusal, *, turn: str = "", session: str = "") -> PreconditionFailed:
    REJECTIONS.count(reason.value)
    return PreconditionFailed(_SENTENCES[reason].format(turn=turn, session=session), reason=reason.value)
