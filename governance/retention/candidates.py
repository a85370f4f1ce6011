"""Find items past their age: one SELECT per sort of item, each row with what protects it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from governance.retention import policy
from governance.retention import policy as keepers
from governance.retention.policy import Policy, match_rules
from governance.retention.schemas import Sample
from memoryhub.config.retention_rules import What, captured_types, pack_types
from memoryhub.core import clock
from memoryhub.core.events.event_types import quoted
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS


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
    # Of payloads
    bytes: int
    # Index of the rule that deletes it
    rule: int
    # What protects it, as ``kind:id``; "" for nothing
    keeper: str


@dataclass(frozen=True, slots=True)
class Source:
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

    @property
    def whats(self) -> tuple[What, ...]:
        return (self.what, *self.also)


_MEMORY_COLUMNS = {"kind": "kind", "type": "type", "scope": "scope"}
_OF_MEMORY = (keepers.HELD_STREAM, keepers.QUARANTINED, keepers.CONFLICT, keepers.REVIEW)
_OF_THING = (keepers.HELD_STREAM, keepers.QUARANTINED)
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

CAPTURED = Source(
    What.CAPTURED,
    "SELECT position AS id, event_type AS sub, stream_id AS stream, occurred_at AS at, session_id AS session, "
    "turn_id AS turn, event_type, octet_length(payload_json) AS bytes, event_type IN ({packs}) AS is_pack "
    "FROM raw_events WHERE event_type IN ({types}) AND payload_json IS NOT NULL {only}",
    "position",
    (keepers.HELD_EVENT, keepers.QUARANTINED, keepers.OPEN_TURN, keepers.OPEN_SESSION),
    columns={"event_type": "event_type"},
    iso=True,
    also=(What.PACK,),
    pack="is_pack",
    single=True,
)
THINGS = (
    Source(
        What.DELETED, _MEMORY.format(at="deleted_at", deleted="NOT NULL"), "id", _OF_MEMORY, columns=_MEMORY_COLUMNS
    ),
    Source(What.MEMORY, _MEMORY.format(at=_STORED_AT, deleted="NULL"), "id", _OF_MEMORY, columns=_MEMORY_COLUMNS),
    Source(
        What.SESSION,
        "SELECT id, '' AS sub, 'session:' || s.session_id AS stream, (SELECT max(e.occurred_at) FROM raw_events e "
        "WHERE e.stream_id = 'session:' || s.session_id) AS at "
        "FROM sessions_app_session s WHERE ended_at IS NOT NULL AND status IN ('completed', 'discarded') {only}",
        "id",
        _OF_THING,
        iso=True,
    ),
    Source(
        What.DECISION,
        f"SELECT d.id AS id, '' AS sub, 'decision:' || d.id AS stream, {_LAST} AS at FROM decisions_decision d "
        "WHERE true {only}",
        "d.id",
        _OF_THING,
        iso=True,
    ),
    Source(
        What.ITERATION,
        "SELECT id, '' AS sub, 'iteration:' || id AS stream, CAST(ended_at AS text) AS at FROM sessions_app_iteration "
        "WHERE ended_at IS NOT NULL {only}",
        "id",
        _OF_THING,
    ),
    Source(
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


def select(source: Source, policy: Policy, only: Sequence[int] | None = None) -> Iterator[Candidate]:
    """Yield items past their age, by id, each with what protects it by itself.

    Args:
        source: the sort of item.
        policy: the rules.
        only: ids to consider; default: all.
    """
    if not policy.takes(*source.whats):
        return
    fits = match_rules(policy, *source.whats, columns=source.columns, pack=source.pack, iso=source.iso)
    narrowed, listed = ("", []) if only is None else (f"AND {source.id} IN {IDS}", [only])
    sizes = "1, t.bytes" if source.single else _SIZES
    found = ", ".join(f"({sql})" for sql in (*source.keepers, keepers.KEPT_BY_RULE))
    sql = (
        f"SELECT t.id, t.sub, t.stream, t.at, {sizes}, t.ageing, coalesce({found}, '') "
        f"FROM (SELECT r.*, {fits.first} AS first, {fits.ageing} AS ageing "
        f"FROM ({source.rows.format(only=narrowed, **_types())}) AS r) AS t WHERE t.at < {fits.before} ORDER BY t.id"
    )
    parameters = [*fits.first_parameters, *fits.ageing_parameters, *map(json.dumps, listed), *fits.before_parameters]
    packs = pack_types()
    for row in rows.iterate(sql, parameters):
        what = What.PACK if row[1] in packs else source.what
        yield Candidate(what.value, *row)


def _types() -> dict[str, str]:
    return {"types": quoted(captured_types()), "packs": quoted(pack_types())}


_CHARACTERS = 120
_FIELDS = "title content command tool path subject phase description message purpose query summary".split()
_PAYLOADS = (
    f"SELECT position, event_type, payload_json FROM raw_events WHERE position IN {IDS} AND payload_json IS NOT NULL"
)


def samples_of(found: Sequence[Candidate]) -> dict[int, Sample]:
    words = words_of([candidate.id for candidate in found])
    return {
        candidate.id: Sample(
            id=candidate.id,
            at=clock.from_text(candidate.at),
            text=words.get(candidate.id, ""),
            by=_keeper(candidate.keeper),
        )
        for candidate in found
    }


def words_of(ids: Sequence[int]) -> dict[int, str]:
    payloads = rows.fetch(_PAYLOADS, [json.dumps(sorted(set(ids)))])
    return {position: first_words(json.loads(payload)) or name for position, name, payload in payloads}


def first_words(payload: dict[str, Any]) -> str:
    text = next((str(payload[name]) for name in _FIELDS if payload.get(name)), "")
    line = " ".join(text[: 4 * _CHARACTERS].split())
    return line if len(line) <= _CHARACTERS else f"{line[: _CHARACTERS - 1].rstrip()}…"


def _keeper(keeper: str) -> str:
    kind, number = policy.parse(keeper) if keeper else ("", 0)
    return f"{policy.REFERS_TO[kind]} #{number}".strip() if kind in policy.REFERS_TO else ""
