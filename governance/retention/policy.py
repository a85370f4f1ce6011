"""A store's retention policy as SQL: its rules in order, the two simple settings last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from governance.models import Hold
from memoryhub.config.current_settings import project_settings
from memoryhub.config.retention_rules import RetentionRule, What
from memoryhub.core import clock
from memoryhub.core.stores import rows

# Reasons for protection, as plans show them
LABELS = {
    "hold": "a hold",
    "quarantine": "in quarantine, as evidence for a roll-back",
    "turn": "its turn is open",
    "session": "its session has not ended",
    "conflict": "an unresolved conflict",
    "review": "awaiting review",
    "cited": "cited by a decision in force",
    "relation": "related to an item that is kept",
    "lineage": "in the lineage of a decision that is kept",
    "evidence": "linked by evidence to an item that is kept",
    "belongs": "an item that is kept belongs to it",
    "rule": "a rule",
}
# What the id of a keeper refers to; "" if it varies
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

# The first hold on the whole store, on the stream, or on a session of it
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
    kind, _, number = keeper.partition(":")
    return kind, int(number)


def hold_reasons() -> dict[int, str]:
    return dict(Hold.objects.filter(lifted_at__isnull=True).values_list("id", "reason"))


CONDITIONS = ("event_type", "kind", "type", "scope")
# Deleted only by a rule that names them; plans show a warning
EXPLICIT = frozenset({What.MEMORY, What.SESSION, What.DECISION, What.ITERATION, What.COMMIT})


@dataclass(frozen=True, slots=True)
class Policy:
    # The first matching rule decides
    rules: tuple[RetentionRule, ...]
    # Ages are counted from here
    cutoff: datetime
    # How many rules at the end are the two simple settings
    simple: int = 2

    @classmethod
    def current(cls, cutoff: datetime) -> Policy:
        settings = project_settings()
        simple = [
            RetentionRule(what=What.CAPTURED, after_days=settings.retention_days),
            RetentionRule(what=What.DELETED, after_days=settings.purge_deleted_after_days),
        ]
        return cls((*settings.retention, *simple), cutoff)

    @property
    def applies(self) -> bool:
        return any(rule.after_days is not None for rule in self.rules)

    def name(self, index: int) -> str:
        own = len(self.rules) - self.simple
        if index < own:
            return f"rule {index + 1}"
        return ("retention_days", "purge_deleted_after_days")[index - own]

    def before(self, index: int) -> datetime:
        try:
            return self.cutoff - timedelta(days=self.rules[index].after_days or 0)
        except OverflowError:  # ``now`` is close to year 1
            return datetime.min.replace(tzinfo=UTC)

    def about(self, *whats: What) -> list[int]:
        return [index for index, rule in enumerate(self.rules) if rule.what in whats]

    def takes(self, *whats: What) -> bool:
        return any(self.rules[index].after_days is not None for index in self.about(*whats))


# Midnight UTC, so that a plan stays valid for the whole day (decision 26)
def day_start(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


@dataclass(frozen=True, slots=True)
class RuleMatch:
    # The first matching rule; NULL for none
    first: str
    # The first matching rule that deletes
    ageing: str
    # The time before which the rule in the column ``ageing`` deletes the row
    before: str
    first_parameters: list[str]
    ageing_parameters: list[str]
    before_parameters: list[str]


def match_rules(policy: Policy, *whats: What, columns: Mapping[str, str], pack: str = "", iso: bool) -> RuleMatch:
    """Return SQL for the rule that matches each row.

    Args:
        policy: the rules.
        whats: sorts of items the rows can be.
        columns: the rows' columns by rule condition.
        pack: SQL condition for context packs among captured events.
        iso: True if times are in the log's format, False for the read models' format.
    """
    indexes = policy.about(*whats)
    ageing = [index for index in indexes if policy.rules[index].after_days is not None]
    first, first_parameters = _case(policy, indexes, columns, pack)
    aged, ageing_parameters = _case(policy, ageing, columns, pack)
    text = clock.to_text if iso else rows.time_value
    arms = " ".join(f"WHEN {index} THEN %s" for index in ageing)
    before = f"CASE ageing {arms} END" if arms else "NULL"
    return RuleMatch(
        first, aged, before, first_parameters, ageing_parameters, [text(policy.before(index)) for index in ageing]
    )


def _case(policy: Policy, indexes: list[int], columns: Mapping[str, str], pack: str) -> tuple[str, list[str]]:
    if not indexes:
        return "NULL", []
    arms, parameters = [], []
    for index in indexes:
        condition, values = _condition(policy.rules[index], columns, pack)
        arms.append(f"WHEN {condition} THEN {index}")
        parameters += values
    return f"CASE {' '.join(arms)} END", parameters


def _condition(rule: RetentionRule, columns: Mapping[str, str], pack: str) -> tuple[str, list[str]]:
    wanted = {columns[name]: getattr(rule, name) for name in CONDITIONS if getattr(rule, name) is not None}
    parts = [f"{column} = %s" for column in wanted]
    if rule.what is What.PACK:
        parts.append(pack)
    return " AND ".join(parts) or "true", list(wanted.values())
