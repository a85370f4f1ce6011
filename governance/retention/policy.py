"""The policy of a store: its rules in order, the two simple settings last, as SQL that says which rule fits a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from governance.models import Hold
from memoryhub.config.project_settings import project_settings
from memoryhub.config.retention_rules import RetentionRule, What
from memoryhub.core import clock
from memoryhub.core.stores import rows

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


CONDITIONS = ("event_type", "kind", "type", "scope")
EXPLICIT = frozenset({What.MEMORY, What.SESSION, What.DECISION, What.ITERATION, What.COMMIT})
"""What goes by a rule that names it only; the plan warns of it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How long things are kept, as of one time."""

    rules: tuple[RetentionRule, ...]
    """The first that fits decides."""
    cutoff: datetime
    """From where ages are counted."""
    simple: int = 2
    """So many of the rules, at the end, are the two simple settings."""

    @classmethod
    def current(cls, cutoff: datetime) -> Policy:
        """Return the policy of the current store."""
        settings = project_settings()
        simple = [
            RetentionRule(what=What.CAPTURED, after_days=settings.retention_days),
            RetentionRule(what=What.DELETED, after_days=settings.purge_deleted_after_days),
        ]
        return cls((*settings.retention, *simple), cutoff)

    @property
    def applies(self) -> bool:
        """Whether anything can go by it at all."""
        return any(rule.after_days is not None for rule in self.rules)

    def name(self, index: int) -> str:
        """Return what a rule is called: its number, or the setting that it is."""
        own = len(self.rules) - self.simple
        if index < own:
            return f"rule {index + 1}"
        return ("retention_days", "purge_deleted_after_days")[index - own]

    def before(self, index: int) -> datetime:
        """Return the time before which a rule takes what it fits."""
        try:
            return self.cutoff - timedelta(days=self.rules[index].after_days or 0)
        except OverflowError:  # a plan for a time so early that no calendar has the time before it
            return datetime.min.replace(tzinfo=UTC)

    def about(self, *whats: What) -> list[int]:
        """Return the rules about any of these."""
        return [index for index, rule in enumerate(self.rules) if rule.what in whats]

    def takes(self, *whats: What) -> bool:
        """Whether any rule lets any of these go."""
        return any(self.rules[index].after_days is not None for index in self.about(*whats))


def day_start(moment: datetime) -> datetime:
    """Return midnight before a time, in UTC: ages count from there, so that a plan holds for the whole day."""
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


@dataclass(frozen=True, slots=True)
class Fitting:
    """SQL expressions over one sort of rows, and their parameters."""

    first: str
    """The rule that fits first, NULL for none."""
    ageing: str
    """The first that fits and lets things go."""
    before: str
    """The time before which that rule takes the row; of ``ageing`` as the column ``ageing``."""
    first_parameters: list[str]
    ageing_parameters: list[str]
    before_parameters: list[str]


def fitting(policy: Policy, *whats: What, columns: Mapping[str, str], pack: str = "", iso: bool) -> Fitting:
    """Return which rule fits each row of things of these sorts.

    Args:
        policy: the rules.
        whats: the sorts that the rows may be of.
        columns: where the rows have what rules may ask for.
        pack: the condition by which a captured row is a pack.
        iso: whether the rows' times are as the log writes them; else as the read models do.
    """
    indexes = policy.about(*whats)
    ageing = [index for index in indexes if policy.rules[index].after_days is not None]
    first, first_parameters = _case(policy, indexes, columns, pack)
    aged, ageing_parameters = _case(policy, ageing, columns, pack)
    text = clock.to_text if iso else rows.time_value
    arms = " ".join(f"WHEN {index} THEN %s" for index in ageing)
    before = f"CASE ageing {arms} END" if arms else "NULL"
    return Fitting(
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
    return " AND ".join(parts) or "1", list(wanted.values())
