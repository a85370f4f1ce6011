"""Count what is past its age: deletions by rule, protected items by reason, and a digest of the deletions."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from governance.retention import policy as protections
from governance.retention.candidates import CAPTURED, THINGS, Candidate, samples_of, select
from governance.retention.policy import EXPLICIT, Policy
from governance.retention.schemas import Going, Kept, Report, Sample
from memories.uses.counting import named_in
from memoryhub.config.retention_rules import What, pack_types
from memoryhub.core import clock
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

Ranges = list[tuple[int, int]]


# Ids must be added in ascending order
def extend(ranges: Ranges, number: int) -> None:
    if ranges and ranges[-1][1] == number - 1:
        ranges[-1] = (ranges[-1][0], number)
    else:
        ranges.append((number, number))


def numbers(ranges: Iterable[Sequence[int]]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)


def chunks(ranges: Iterable[Sequence[int]], size: int) -> Iterator[list[int]]:
    chunk: list[int] = []
    for number in numbers(ranges):
        chunk.append(number)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


_FIRST, _LAST = 3, 2
_SINGLE = frozenset({What.CAPTURED, What.PACK})


@dataclass(slots=True)
class Group:
    things: int = 0
    events: int = 0
    bytes: int = 0
    oldest: str = ""
    newest: str = ""
    first: list[Candidate] = field(default_factory=list)
    last: deque[Candidate] = field(default_factory=lambda: deque(maxlen=_LAST))
    ids: Ranges = field(default_factory=list)

    def add(self, found: Candidate) -> None:
        self.things += 1
        self.events += found.events
        self.bytes += found.bytes
        self.oldest = min(self.oldest or found.at, found.at)
        self.newest = max(self.newest, found.at)
        (self.first if len(self.first) < _FIRST else self.last).append(found)

    @property
    def samples(self) -> list[Candidate]:
        return [*self.first, *self.last]

    def counts(self) -> dict[str, int | datetime]:
        times = {"oldest": clock.from_text(self.oldest), "newest": clock.from_text(self.newest)}
        return {"things": self.things, "events": self.events, "bytes": self.bytes, **times}


class Tally:
    def __init__(self, policy: Policy, found: Iterable[Candidate]) -> None:
        self.policy = policy
        self.going: dict[tuple[int, str, str], Group] = {}
        self.kept: dict[tuple[str, str], Group] = {}
        # Single events to delete
        self.positions: Ranges = []
        self._digest = hashlib.sha256()
        for candidate in found:
            self._keep(candidate) if candidate.keeper else self._let_go(candidate)

    def _let_go(self, found: Candidate) -> None:
        self._digest.update(f"{found.what}:{found.id}:{found.events}:{found.bytes}\n".encode())
        group = self.going.setdefault((found.rule, found.what, found.sub), Group())
        group.add(found)
        extend(self.positions if found.what in _SINGLE else group.ids, found.id)

    def _keep(self, found: Candidate) -> None:
        kind, _ = protections.parse(found.keeper)
        named = found.keeper if kind in ("hold", "rule") else kind
        self.kept.setdefault((named, found.what), Group()).add(found)

    # A run is confirmed by the digest of its list, not by the rules (decision 26)
    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    # Items to delete with their streams, by the index of their group in the report
    def things(self) -> dict[int, Ranges]:
        return {place: group.ids for place, (_, group) in enumerate(self._in_order()) if group.ids}

    def _in_order(self) -> list[tuple[tuple[int, str, str], Group]]:
        order = list(What)
        return sorted(self.going.items(), key=lambda item: (order.index(What(item[0][1])), -item[1].things, item[0]))

    def report(self) -> Report:
        samples = samples_of([candidate for group in self._groups() for candidate in group.samples])
        going = [self._going(key, group, samples) for key, group in self._in_order()]
        reasons = protections.hold_reasons()
        kept = [
            self._kept(key, group, samples, reasons)
            for key, group in sorted(self.kept.items(), key=lambda item: item[0])
        ]
        return Report(
            going=going,
            kept=kept,
            things=sum(share.things for share in going),
            events=sum(share.events for share in going),
            bytes=sum(share.bytes for share in going),
        )

    def _groups(self) -> list[Group]:
        return [*self.going.values(), *self.kept.values()]

    def _going(self, key: tuple[int, str, str], group: Group, samples: dict[int, Sample]) -> Going:
        rule, what, sub = key
        return Going.model_validate(
            {
                "what": what,
                "sub": "" if sub in pack_types() else sub,
                "rule": self.policy.name(rule),
                "says": self.policy.rules[rule].sentence(),
                "warning": _WARNING.format(self.policy.name(rule)) if what in EXPLICIT else "",
                "samples": [samples[candidate.id] for candidate in group.samples],
                **group.counts(),
            }
        )

    def _kept(self, key: tuple[str, str], group: Group, samples: dict[int, Sample], reasons: dict[int, str]) -> Kept:
        named, what = key
        kind, number = protections.parse(named) if ":" in named else (named, 0)
        return Kept.model_validate(
            {
                "what": what,
                "keeper": kind,
                "says": self._says(kind, number, reasons),
                "samples": [samples[candidate.id] for candidate in group.samples],
                **group.counts(),
            }
        )

    def _says(self, kind: str, number: int, reasons: dict[int, str]) -> str:
        if kind == "hold":
            return f"hold #{number}: {reasons.get(number, '')}"
        if kind == "rule":
            return f"{self.policy.name(number)}: {self.policy.rules[number].sentence()}"
        return protections.LABELS[kind]


_WARNING = "These are deleted only because {} names them."


# Ids by sort of item
Sorts = dict[What, list[int]]


# While ``stays`` exists, ``kept`` is kept
class Reference(NamedTuple):
    stays: int
    kept: int
    # The reason, as ``kind:id``
    keeper: str


_AMONG = f"IN {IDS}"
_IN_FORCE = "d.status IN ('proposed', 'accepted')"
_SESSION, _DECISION, _ITERATION, _COMMIT = What.SESSION, What.DECISION, What.ITERATION, What.COMMIT
_RELATED = (What.DELETED, What.MEMORY, _SESSION, _DECISION, _COMMIT)
_NOT_PROJECT = "source_type <> 'project' AND target_type <> 'project'"
# Projectors of later events read these items, so a rebuild without them would differ (decision 26).
# By sort of the protected item: while the first id exists, the second is kept.
_REFERENCES: tuple[tuple[tuple[What, ...], str], ...] = (
    (
        _RELATED,
        "SELECT source_id, target_id, 'relation:' || id FROM memories_relation "
        f"WHERE {_NOT_PROJECT} AND target_id {_AMONG}",
    ),
    (
        _RELATED,
        "SELECT target_id, source_id, 'relation:' || id FROM memories_relation "
        f"WHERE {_NOT_PROJECT} AND source_id {_AMONG}",
    ),
    ((_DECISION,), f"SELECT from_id, to_id, 'lineage:' || from_id FROM decisions_decisionedge WHERE to_id {_AMONG}"),
    ((_DECISION,), f"SELECT to_id, from_id, 'lineage:' || to_id FROM decisions_decisionedge WHERE from_id {_AMONG}"),
    (
        (_COMMIT,),
        f"SELECT decision_id, commit_id, 'evidence:' || decision_id FROM decisions_commitlink WHERE commit_id {_AMONG}",
    ),
    (
        (_DECISION,),
        f"SELECT commit_id, decision_id, 'evidence:' || commit_id FROM decisions_commitlink WHERE decision_id {_AMONG}",
    ),
    ((_ITERATION,), f"SELECT id, iteration_id, 'belongs:' || id FROM sessions_app_commit WHERE iteration_id {_AMONG}"),
    ((_ITERATION,), f"SELECT id, iteration_id, 'belongs:' || id FROM decisions_decision WHERE iteration_id {_AMONG}"),
    (
        (_SESSION,),
        "SELECT m.id, s.id, 'belongs:' || m.id FROM sessions_app_session s "
        "JOIN raw_events e ON e.session_id = s.session_id AND e.event_type IN ('memory.written', 'memory.revised') "
        f"JOIN memories_memory m ON m.id = CAST(substr(e.stream_id, 8) AS integer) WHERE s.id {_AMONG}",
    ),
    (
        (_SESSION,),
        "SELECT d.id, s.id, 'belongs:' || d.id FROM sessions_app_session s "
        f"JOIN decisions_decision d ON d.session_id = s.session_id WHERE s.id {_AMONG}",
    ),
)
_TEXT = (
    "SELECT d.id, d.title || ' ' || d.context || ' ' || d.chosen || ' ' || d.rationale || ' ' || d.alternatives "
    f"FROM decisions_decision d WHERE {_IN_FORCE}"
)
_NOTES = (
    "SELECT a.decision_id, a.value FROM decisions_artifactlink a JOIN decisions_decision d ON d.id = a.decision_id "
    f"WHERE {_IN_FORCE}"
)


# ``found``: candidates with what protects them by themselves; ``cited``: citations by decisions. Returns the keepers,
# following references among candidates to any depth.
def kept_by_references(found: Sequence[Candidate], cited: Sequence[Reference]) -> dict[int, str]:
    direct = {candidate.id: candidate.keeper for candidate in found}
    kept = {thing_id: keeper for thing_id, keeper in direct.items() if keeper}
    held_by: dict[int, list[Reference]] = {}
    waiting: list[Reference] = []
    for reference in [*(citation for citation in cited if citation.kept in direct), *references(sorts(found))]:
        if reference.stays in direct:
            held_by.setdefault(reference.stays, []).append(reference)
        else:
            waiting.append(reference)
    waiting += [reference for thing_id in kept for reference in held_by.get(thing_id, ())]
    while waiting:
        reference = waiting.pop()
        if reference.kept not in kept:
            kept[reference.kept] = reference.keeper
            waiting += held_by.get(reference.kept, ())
    return kept


def sorts(found: Sequence[Candidate]) -> Sorts:
    grouped: Sorts = {}
    for candidate in found:
        grouped.setdefault(What(candidate.what), []).append(candidate.id)
    return grouped


def references(things: Sorts) -> Iterator[Reference]:
    for whats, sql in _REFERENCES:
        ids = [thing_id for what in whats for thing_id in things.get(what, ())]
        if ids:
            yield from (Reference(*row) for row in rows.fetch(sql, [json.dumps(ids)]))


# Ids that the texts and notes of decisions in force mention
def citations() -> list[Reference]:
    return [
        Reference(decision, entity_id, f"cited:{decision}")
        for sql in (_TEXT, _NOTES)
        for decision, text in rows.fetch(sql)
        for entity_id in named_in(text)
    ]


# Items that reference each other are erased in one transaction, or not at all (decision 26)
def group_referenced(things: Sorts, cited: Sequence[Reference]) -> list[list[int]]:
    leader = {thing_id: thing_id for ids in things.values() for thing_id in ids}

    def find(thing_id: int) -> int:
        while leader[thing_id] != thing_id:
            leader[thing_id] = thing_id = leader[leader[thing_id]]
        return thing_id

    for reference in [*cited, *references(things)]:
        if reference.stays in leader and reference.kept in leader:
            first, second = sorted((find(reference.stays), find(reference.kept)))
            leader[second] = first
    groups: dict[int, list[int]] = {}
    for thing_id in sorted(leader):
        groups.setdefault(find(thing_id), []).append(thing_id)
    return list(groups.values())


# One reading of the store; citations are read once for it
class Survey:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.cited: list[Reference] = citations()

    # Whole streams first, then single events: a citation by a decision that is deleted itself protects nothing
    def past_age(
        self, *, events: Sequence[int] | None = None, things: Sequence[int] | None = None
    ) -> Iterator[Candidate]:
        gone: set[int] = set()
        for found in self.things(things):
            if not found.keeper:
                gone.add(found.id)
            yield found
        yield from self.events(events, but_of=gone)

    def events(self, only: Sequence[int] | None = None, *, but_of: Collection[int] = ()) -> Iterator[Candidate]:
        cited = {reference.kept: reference.keeper for reference in self.cited if reference.stays not in but_of}
        for found in select(CAPTURED, self.policy, only):
            yield found._replace(keeper=found.keeper or cited.get(found.id, ""))

    def things(self, only: Sequence[int] | None = None) -> Iterator[Candidate]:
        found = [candidate for source in THINGS for candidate in select(source, self.policy, only)]
        kept = kept_by_references(found, self.cited)
        yield from (candidate._replace(keeper=kept.get(candidate.id, "")) for candidate in found)
