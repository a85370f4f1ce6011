"""Items past their age under the retention rules: one SELECT per sort of item, each row with what protects it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from governance.retention.schemas import Sample
from memoryhub.config.current_settings import project_settings
from memoryhub.config.retention_rules import RetentionRule, What, captured_types, pack_types
from memoryhub.core import clock
from memoryhub.core.events.event_types import quoted
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.core.text import one_line

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
_REFERS_TO = {
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
_HELD_EVENT = _HELD.format(session="h.stream_id = 'session:' || t.session")
_HELD_STREAM = _HELD.format(
    session="h.stream_id IN (SELECT 'session:' || e.session_id FROM raw_events e WHERE e.stream_id = t.stream)"
)
_QUARANTINED = "SELECT 'quarantine:' || q.placed_by FROM quarantine q WHERE q.id = t.id"
_OPEN_TURN = (
    "SELECT 'turn:' || u.id FROM sessions_app_turn u "
    "WHERE u.session_id = t.session AND u.turn_id = t.turn AND u.status = 'open'"
)
_OPEN_SESSION = (
    "SELECT 'session:' || s.id FROM sessions_app_session s "
    "WHERE s.session_id = t.session AND s.status IN ('active', 'paused')"
)
_CONFLICT = (
    "SELECT 'conflict:' || c.id FROM memories_conflict c "
    "WHERE c.memory_id = t.id AND c.resolved_at IS NULL ORDER BY c.id LIMIT 1"
)
_REVIEW = "SELECT 'review:0' FROM memories_memory m WHERE m.id = t.id AND m.review = 'proposed'"
_KEPT_BY_RULE = "SELECT 'rule:' || t.first WHERE t.first IS DISTINCT FROM t.ageing"


def parse_keeper(keeper: str) -> tuple[str, int]:
    kind, _, number = keeper.partition(":")
    return kind, int(number)


CONDITIONS = ("event_type", "kind", "type", "scope")
# Deleted only by a rule that names them; plans show a warning
EXPLICIT = frozenset({What.MEMORY, What.SESSION, What.DECISION, What.ITERATION, What.COMMIT})


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    # The first matching rule decides; the last two are the simple settings
    rules: tuple[RetentionRule, ...]
    # Ages are counted from here
    cutoff: datetime

    @classmethod
    def current(cls, cutoff: datetime) -> RetentionPolicy:
        settings = project_settings()
        captured = RetentionRule(what=What.CAPTURED, after_days=settings.retention_days)
        deleted = RetentionRule(what=What.DELETED, after_days=settings.purge_deleted_after_days)
        return cls((*settings.retention, captured, deleted), cutoff)

    @property
    def applies(self) -> bool:
        return any(rule.after_days is not None for rule in self.rules)

    def name(self, index: int) -> str:
        simple = {len(self.rules) - 2: "retention_days", len(self.rules) - 1: "purge_deleted_after_days"}
        return simple.get(index, f"rule {index + 1}")

    def before(self, index: int) -> datetime:
        try:
            return self.cutoff - timedelta(days=self.rules[index].after_days or 0)
        except OverflowError:  # ``now`` is close to year 1
            return datetime.min.replace(tzinfo=UTC)

    def about(self, *whats: What) -> list[int]:
        return [index for index, rule in enumerate(self.rules) if rule.what in whats]


# Midnight UTC, so that a plan stays valid for the whole day (decision 26)
def day_start(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


class Candidate(NamedTuple):
    what: str
    # Position of the event, or of the first event of the stream
    id: int
    # Event type or kind; "" if there is none
    sub: str
    stream: str
    # Start of its age, in the format of the log or of the read model
    at: str
    events: int
    # Size of the payloads
    bytes: int
    # Index of the rule that deletes it
    rule: int
    # What protects it, as ``kind:id``; "" for nothing
    keeper: str


@dataclass(frozen=True, slots=True)
class CandidateSource:
    what: What
    # SELECT of id, sub, stream, at and what ``columns`` and keepers need. ``{only}`` restricts ids; ``{types}`` and
    # ``{packs}`` are lists of event types.
    rows: str
    id: str
    keepers: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    iso: bool = False
    also: tuple[What, ...] = ()
    pack: str = "0"
    # True: single events; False: whole streams
    single: bool = False


_MEMORY_COLUMNS = {"kind": "kind", "type": "type", "scope": "scope"}
_OF_MEMORY = (_HELD_STREAM, _QUARANTINED, _CONFLICT, _REVIEW)
_OF_THING = (_HELD_STREAM, _QUARANTINED)
_MEMORY = (
    "SELECT id, kind AS sub, 'memory:' || id AS stream, CAST({at} AS text) AS at, kind, type, scope "
    "FROM memories_memory WHERE deleted_at IS {deleted} {{only}}"
)
# When the store got its text, which can be years after another tool wrote it
_STORED_AT = (
    "(SELECT v.created_at FROM memories_memoryversion v WHERE v.memory_id = memories_memory.id "
    "AND v.version = memories_memory.version)"
)
_LAST = "(SELECT max(e.occurred_at) FROM raw_events e WHERE e.stream_id = 'decision:' || d.id)"

CAPTURED = CandidateSource(
    What.CAPTURED,
    "SELECT position AS id, event_type AS sub, stream_id AS stream, occurred_at AS at, session_id AS session, "
    "turn_id AS turn, event_type, octet_length(payload_json) AS bytes, event_type IN ({packs}) AS is_pack "
    "FROM raw_events WHERE event_type IN ({types}) AND payload_json IS NOT NULL {only}",
    "position",
    (_HELD_EVENT, _QUARANTINED, _OPEN_TURN, _OPEN_SESSION),
    columns={"event_type": "event_type"},
    iso=True,
    also=(What.PACK,),
    pack="is_pack",
    single=True,
)
THINGS = (
    CandidateSource(
        What.DELETED, _MEMORY.format(at="deleted_at", deleted="NOT NULL"), "id", _OF_MEMORY, columns=_MEMORY_COLUMNS
    ),
    CandidateSource(
        What.MEMORY, _MEMORY.format(at=_STORED_AT, deleted="NULL"), "id", _OF_MEMORY, columns=_MEMORY_COLUMNS
    ),
    CandidateSource(
        What.SESSION,
        "SELECT id, '' AS sub, 'session:' || s.session_id AS stream, (SELECT max(e.occurred_at) FROM raw_events e "
        "WHERE e.stream_id = 'session:' || s.session_id) AS at "
        "FROM sessions_app_session s WHERE ended_at IS NOT NULL AND status IN ('completed', 'discarded') {only}",
        "id",
        _OF_THING,
        iso=True,
    ),
    CandidateSource(
        What.DECISION,
        f"SELECT d.id AS id, '' AS sub, 'decision:' || d.id AS stream, {_LAST} AS at FROM decisions_decision d "
        "WHERE true {only}",
        "d.id",
        _OF_THING,
        iso=True,
    ),
    CandidateSource(
        What.ITERATION,
        "SELECT id, '' AS sub, 'iteration:' || id AS stream, CAST(ended_at AS text) AS at FROM sessions_app_iteration "
        "WHERE ended_at IS NOT NULL {only}",
        "id",
        _OF_THING,
    ),
    CandidateSource(
        What.COMMIT,
        "SELECT c.id AS id, '' AS sub, e.stream_id AS stream, e.occurred_at AS at FROM sessions_app_commit c "
        "JOIN raw_events e ON e.position = c.id WHERE true {only}",
        "c.id",
        _OF_THING,
        iso=True,
    ),
)

_SIZES = (
    "(SELECT count(*) FROM raw_events e WHERE e.stream_id = t.stream AND e.payload_json IS NOT NULL), "
    "(SELECT coalesce(sum(octet_length(e.payload_json)), 0) FROM raw_events e WHERE e.stream_id = t.stream)"
)


def select(source: CandidateSource, policy: RetentionPolicy, only: Sequence[int] | None = None) -> Iterator[Candidate]:
    """Yield items past their age, by id, each with what protects it by itself.

    Args:
        source: the sort of item.
        policy: the rules.
        only: ids to consider; default: all.
    """
    indexes = policy.about(source.what, *source.also)
    deleting = [index for index in indexes if policy.rules[index].after_days is not None]
    if not deleting:
        return
    first, first_parameters = _case(policy, indexes, source)
    ageing, ageing_parameters = _case(policy, deleting, source)
    parameters = [*first_parameters, *ageing_parameters]
    restriction = ""
    if only is not None:
        restriction = f"AND {source.id} IN {IDS}"
        parameters.append(json.dumps(only))
    packs = pack_types()
    items = source.rows.format(only=restriction, types=quoted(captured_types()), packs=quoted(packs))
    sizes = "1, t.bytes" if source.single else _SIZES
    protection = ", ".join(f"({sql})" for sql in (*source.keepers, _KEPT_BY_RULE))
    before = " ".join(f"WHEN {index} THEN %s" for index in deleting)
    as_text = clock.to_text if source.iso else rows.time_value
    for index in deleting:
        parameters.append(as_text(policy.before(index)))
    # ``first``: the first matching rule, ``ageing``: the first that deletes
    sql = (
        f"SELECT t.id, t.sub, t.stream, t.at, {sizes}, t.ageing, coalesce({protection}, '') "
        f"FROM (SELECT r.*, {first} AS first, {ageing} AS ageing FROM ({items}) AS r) AS t "
        f"WHERE t.at < CASE ageing {before} END ORDER BY t.id"
    )
    for row in rows.iterate(sql, parameters):
        what = What.PACK if row[1] in packs else source.what
        yield Candidate(what.value, *row)


# The index of the first of some rules that matches a row
def _case(policy: RetentionPolicy, indexes: Sequence[int], source: CandidateSource) -> tuple[str, list[str]]:
    arms = []
    parameters: list[str] = []
    for index in indexes:
        rule = policy.rules[index]
        conditions = []
        for name in CONDITIONS:
            value = getattr(rule, name)
            if value is not None:
                conditions.append(f"{source.columns[name]} = %s")
                parameters.append(value)
        if rule.what is What.PACK:
            conditions.append(source.pack)
        arms.append(f"WHEN {' AND '.join(conditions) or 'true'} THEN {index}")
    return f"CASE {' '.join(arms)} END", parameters


_CHARACTERS = 120
_FIELDS = "title content command tool path subject phase description message purpose query summary".split()
_PAYLOADS = (
    f"SELECT position, event_type, payload_json FROM raw_events WHERE position IN {IDS} AND payload_json IS NOT NULL"
)


def samples_of(candidates: Sequence[Candidate]) -> dict[int, Sample]:
    words = words_of([candidate.id for candidate in candidates])
    samples = {}
    for candidate in candidates:
        by = ""
        if candidate.keeper:
            kind, number = parse_keeper(candidate.keeper)
            if kind in _REFERS_TO:
                by = f"{_REFERS_TO[kind]} #{number}".strip()
        at = clock.from_text(candidate.at)
        samples[candidate.id] = Sample(id=candidate.id, at=at, text=words.get(candidate.id, ""), by=by)
    return samples


def words_of(ids: Sequence[int]) -> dict[int, str]:
    payloads = rows.fetch(_PAYLOADS, [json.dumps(sorted(set(ids)))])
    return {position: _first_words(json.loads(payload)) or name for position, name, payload in payloads}


def _first_words(payload: dict[str, Any]) -> str:
    text = next((str(payload[name]) for name in _FIELDS if payload.get(name)), "")
    return one_line(text[: 4 * _CHARACTERS], _CHARACTERS)
