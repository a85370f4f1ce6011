"""What keeps a thing whose time is up: SQL that names it as ``kind:id``, the weightiest first, and how it is said."""

from __future__ import annotations

from governance.models import Hold

LABELS = {
    "hold": "a hold",
    "quarantine": "in quarantine, as evidence of a roll-back",
    "turn": "its turn is still open",
    "session": "its session has not ended",
    "conflict": "an unsettled conflict",
    "review": "waits for review",
    "cited": "cited by a decision that stands",
    "relation": "a relation to what stays",
    "lineage": "in the lineage of a decision that stays",
    "evidence": "evidence that links it with what stays",
    "belongs": "something that stays belongs to it",
    "rule": "a rule",
}
"""Each keeper, as the plan calls it."""
REFERS_TO = {
    "hold": "hold",
    "quarantine": "event",
    "turn": "turn",
    "session": "session",
    "conflict": "conflict",
    "cited": "decision",
    "relation": "relation",
    "lineage": "decision",
    "evidence": "",
    "belongs": "",
}
"""What the id is of; "" where it may be of several things."""

_HELD = (
    "SELECT 'hold:' || h.id FROM governance_hold h WHERE h.lifted_at IS NULL AND (h.stream_id = '*' "
    "OR h.stream_id = t.stream OR {session}) ORDER BY h.id LIMIT 1"
)
HELD_EVENT = _HELD.format(session="h.stream_id = 'session:' || t.session")
HELD_STREAM = _HELD.format(
    session="h.stream_id IN (SELECT 'session:' || e.session_id FROM raw_events e WHERE e.stream_id = t.stream)"
)
QUARANTINED = "SELECT 'quarantine:' || q.placed_by FROM quarantine q WHERE q.id = t.id"
OPEN_TURN = (
    "SELECT 'turn:' || u.id FROM sessions_app_turn u "
    "WHERE u.session_id = t.session AND u.turn_id = t.turn AND u.status = 'open'"
)
OPEN_SESSION = (
    "SELECT 'session:' || s.id FROM sessions_app_session s "
    "WHERE s.session_id = t.session AND s.status IN ('active', 'paused')"
)
CONFLICT = (
    "SELECT 'conflict:' || c.id FROM memories_conflict c "
    "WHERE c.memory_id = t.id AND c.resolved_at IS NULL ORDER BY c.id LIMIT 1"
)
REVIEW = "SELECT 'review:0' FROM memories_memory m WHERE m.id = t.id AND m.review = 'proposed'"
KEPT_BY_RULE = "SELECT 'rule:' || t.first WHERE t.first IS DISTINCT FROM t.ageing"


def parse(keeper: str) -> tuple[str, int]:
    """Return the kind and the id of a keeper."""
    kind, _, number = keeper.partition(":")
    return kind, int(number)


def hold_reasons() -> dict[int, str]:
    """Return the reasons of the holds that are in force."""
    return dict(Hold.objects.filter(lifted_at__isnull=True).values_list("id", "reason"))
