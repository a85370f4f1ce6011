"""Why a turn's call is refused: each with a sentence that says how to meet the precondition."""

from __future__ import annotations

from enum import StrEnum

from memoryhub.core import counters
from memoryhub.core.errors import PreconditionFailed


class Refusal(StrEnum):
    """The precondition that failed."""

    NO_TOKEN = "no_token"  # noqa: S105 - the name of a reason
    WRONG_TOKEN = "wrong_token"  # noqa: S105
    OTHER_TURN = "other_turn"
    OTHER_SESSION = "other_session"
    EXPIRED = "expired"
    CLOSED = "closed"
    INCOMPLETE = "incomplete"
    NO_SESSION = "no_session"
    UNKNOWN_SESSION = "unknown_session"
    SESSION_ENDED = "session_ended"


_SENTENCES = {
    Refusal.NO_TOKEN: "this needs the ack_token of an open turn; call turn_begin and send the token that it returns",
    Refusal.WRONG_TOKEN: "ack_token is not one of this project's; call turn_begin and send the token that it returns",
    Refusal.OTHER_TURN: "ack_token is another turn's; send the one that turn_begin returned for turn {turn!r}",
    Refusal.OTHER_SESSION: "ack_token is of session {session!r}; call turn_begin in your own session",
    Refusal.EXPIRED: "the turn's token has run out; call turn_begin for a new turn",
    Refusal.CLOSED: "turn {turn!r} has ended; call turn_begin for a new turn",
    Refusal.INCOMPLETE: "turn {turn!r} was left open too long and is incomplete; call turn_begin for a new turn",
    Refusal.NO_SESSION: "a turn belongs to a session; call session_start, or name its session_id",
    Refusal.UNKNOWN_SESSION: "session {session!r} is not one of this project's; call session_start first",
    Refusal.SESSION_ENDED: "session {session!r} is not active; call session_start for a new one",
}

REJECTIONS = counters.define(
    "append_rejections", "Calls that were refused because a turn's precondition failed", "reason"
)


def refuse(reason: Refusal, *, turn: str = "", session: str = "") -> PreconditionFailed:
    """Count a refusal and return the error to raise."""
    REJECTIONS.count(reason.value)
    return PreconditionFailed(_SENTENCES[reason].format(turn=turn, session=session), reason=reason.value)
