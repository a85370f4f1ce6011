"""Count what is past its age: deletions by rule, protected items by reason, and a digest of the deletions."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from decisions.models import IN_FORCE
from governance.models import Hold
from governance.retention.candidates import (
    CAPTURED,
    EXPLICIT,
    LABELS,
    THINGS,
    Candidate,
    RetentionPolicy,
    parse_keeper,
    samples_of,
    select,
)
from governance.retention.schemas import Going, Kept, Report, Sample
from memories.uses.counting import named_in
from memoryhub.config.retention_rules import What, pack_types
from memoryhub.core import clock
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

Ranges = list[tuple[int, int]]


# Ids must be added in ascending order
def _extend(ranges: Ranges, number: int) -> None:
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
class CandidateGroup:
    things: int = 0
    events: int = 0
    bytes: int = 0
    oldest: str = ""
    newest: str = ""
    first: list[Candidate] = field(default_factory=list)
    last: deque[Candidate] = field(default_factory=lambda: deque(maxlen=_LAST))
    ids: Ranges = field(default_factory=list)

    def add(self, candidate: Candidate) -> None:
        self.things += 1
        self.events += candidate.events
        self.bytes += candidate.bytes
        self.oldest = min(self.oldest or candidate.at, candidate.at)
        self.newest = max(self.newest, candidate.at)
        samples = self.first if len(self.first) < _FIRST else self.last
        samples.append(candidate)

    @property
    def samples(self) -> list[Candidate]:
        return [*self.first, *self.last]

    def share(self, what: str, samples: Mapping[int, Sample]) -> dict[str, Any]:
        return {
            "what": what,
            "things": self.things,
            "events": self.events,
            "bytes": self.bytes,
            "oldest": clock.from_text(self.oldest),
            "newest": clock.from_text(self.newest),
            "samples": [samples[candidate.id] for candidate in self.samples],
        }


class Tally:
    def __init__(self, policy: RetentionPolicy, candidates: Iterable[Candidate]) -> None:
        self.policy = policy
        self.going: dict[tuple[int, str, str], CandidateGroup] = {}
        self.protected: dict[tuple[str, str], CandidateGroup] = {}
        # Single events to delete
        self.positions: Ranges = []
        self._digest = hashlib.sha256()
        for candidate in candidates:
            if candidate.keeper:
                self._add_protected(candidate)
            else:
                self._add_going(candidate)

    def _add_going(self, candidate: Candidate) -> None:
        self._digest.update(f"{candidate.what}:{candidate.id}:{candidate.events}:{candidate.bytes}\n".encode())
        group = self.going.setdefault((candidate.rule, candidate.what, candidate.sub), CandidateGroup())
        group.add(candidate)
        _extend(self.positions if candidate.what in _SINGLE else group.ids, candidate.id)

    # Holds and rules have a group each, the other reasons one of their kind
    def _add_protected(self, candidate: Candidate) -> None:
        kind, _ = parse_keeper(candidate.keeper)
        reason = candidate.keeper if kind in ("hold", "rule") else kind
        self.protected.setdefault((reason, candidate.what), CandidateGroup()).add(candidate)

    # A run is confirmed by the digest of its list, not by the rules (decision 26)
    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    # Items to delete with their streams, by the index of their group in the report
    def things(self) -> dict[int, Ranges]:
        return {place: group.ids for place, (_, group) in enumerate(self._in_order()) if group.ids}

    def _in_order(self) -> list[tuple[tuple[int, str, str], CandidateGroup]]:
        order = list(What)
        return sorted(self.going.items(), key=lambda item: (order.index(What(item[0][1])), -item[1].things, item[0]))

    def report(self) -> Report:
        candidates: list[Candidate] = []
        for group in (*self.going.values(), *self.protected.values()):
            candidates += group.samples
        samples = samples_of(candidates)
        going = []
        for (rule, what, sub), group in self._in_order():
            name = self.policy.name(rule)
            share = Going(
                sub="" if sub in pack_types() else sub,
                rule=name,
                says=self.policy.rules[rule].sentence(),
                warning=f"These are deleted only because {name} names them." if what in EXPLICIT else "",
                **group.share(what, samples),
            )
            going.append(share)
        protected = []
        for reason, what in sorted(self.protected):
            keeper = reason.partition(":")[0]
            share_of_group = self.protected[reason, what].share(what, samples)
            protected.append(Kept(keeper=keeper, says=self._says(reason), **share_of_group))
        return Report(
            going=going,
            kept=protected,
            things=sum(share.things for share in going),
            events=sum(share.events for share in going),
            bytes=sum(share.bytes for share in going),
        )

    def _says(self, reason: str) -> str:
        if ":" not in reason:
            return LABELS[reason]
        kind, number = parse_keeper(reason)
        if kind == "rule":
            return f"{self.policy.name(number)}: {self.policy.rules[number].sentence()}"
        return f"hold #{number}: {self._hold_reasons.get(number, '')}"

    @cached_property
    def _hold_reasons(self) -> dict[int, str]:
        return dict(Hold.objects.filter(lifted_at__isnull=True).values_list("id", "reason"))


# Ids by sort of item
Sorts = dict[What, list[int]]


# While ``holder`` exists, ``protected`` is kept
class Reference(NamedTuple):
    holder: int
    protected: int
    # The reason, as ``kind:id``
    keeper: str


_AMONG = f"IN {IDS}"
_IN_FORCE = f"d.status IN {tuple(map(str, IN_FORCE))}"
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


# What protects each candidate, by itself or by references from others, to any depth; ``cited`` by decisions
def _keepers_of(candidates: Sequence[Candidate], cited: Sequence[Reference]) -> dict[int, str]:
    ids = {candidate.id for candidate in candidates}
    keepers = {candidate.id: candidate.keeper for candidate in candidates if candidate.keeper}
    sorts: Sorts = {}
    for candidate in candidates:
        sorts.setdefault(What(candidate.what), []).append(candidate.id)
    held_by: dict[int, list[Reference]] = {}
    waiting: list[Reference] = []
    for reference in (*cited, *_references(sorts)):
        if reference.holder in ids:
            held_by.setdefault(reference.holder, []).append(reference)
        elif reference.protected in ids:
            waiting.append(reference)
    for thing_id in keepers:
        waiting += held_by.get(thing_id, ())
    while waiting:
        reference = waiting.pop()
        if reference.protected in ids and reference.protected not in keepers:
            keepers[reference.protected] = reference.keeper
            waiting += held_by.get(reference.protected, ())
    return keepers


def _references(things: Sorts) -> Iterator[Reference]:
    for whats, sql in _REFERENCES:
        ids: list[int] = []
        for what in whats:
            ids += things.get(what, ())
        if ids:
            yield from map(Reference._make, rows.fetch(sql, [json.dumps(ids)]))


# Ids that the texts and notes of decisions in force mention
def _citations() -> Iterator[Reference]:
    for sql in (_TEXT, _NOTES):
        for decision, text in rows.fetch(sql):
            for entity_id in named_in(text):
                yield Reference(decision, entity_id, f"cited:{decision}")


# Items that reference each other are erased in one transaction, or not at all (decision 26)
def group_referenced(things: Sorts, cited: Sequence[Reference]) -> list[list[int]]:
    leader = {thing_id: thing_id for ids in things.values() for thing_id in ids}

    def find(thing_id: int) -> int:
        while leader[thing_id] != thing_id:
            leader[thing_id] = thing_id = leader[leader[thing_id]]
        return thing_id

    for reference in (*cited, *_references(things)):
        if reference.holder in leader and reference.protected in leader:
            first, second = sorted((find(reference.holder), find(reference.protected)))
            leader[second] = first
    groups: dict[int, list[int]] = {}
    for thing_id in sorted(leader):
        groups.setdefault(find(thing_id), []).append(thing_id)
    return list(groups.values())


# One reading of the store; citations are read once for it
class Survey:
    def __init__(self, policy: RetentionPolicy) -> None:
        self.policy = policy
        self.cited: list[Reference] = list(_citations())

    # Whole streams first, then single events: a citation by a decision that is deleted itself protects nothing
    def past_age(
        self, *, events: Sequence[int] | None = None, things: Sequence[int] | None = None
    ) -> Iterator[Candidate]:
        gone: set[int] = set()
        for candidate in self.things(things):
            if not candidate.keeper:
                gone.add(candidate.id)
            yield candidate
        yield from self.events(events, but_of=gone)

    def events(self, only: Sequence[int] | None = None, *, but_of: Collection[int] = ()) -> Iterator[Candidate]:
        cited = {reference.protected: reference.keeper for reference in self.cited if reference.holder not in but_of}
        for candidate in select(CAPTURED, self.policy, only):
            yield candidate._replace(keeper=candidate.keeper or cited.get(candidate.id, ""))

    def things(self, only: Sequence[int] | None = None) -> Iterator[Candidate]:
        candidates: list[Candidate] = []
        for source in THINGS:
            candidates += select(source, self.policy, only)
        keepers = _keepers_of(candidates, self.cited)
        for candidate in candidates:
            yield candidate._replace(keeper=keepers.get(candidate.id, ""))
