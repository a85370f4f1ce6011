"""Count what is past its age: deletions by rule, protected items by reason, and a digest of the deletions."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from governance.retention import policy as protections
from governance.retention.candidates import Candidate, samples_of
from governance.retention.policy import EXPLICIT, Policy
from governance.retention.schemas import Going, Kept, Report, Sample
from memoryhub.config.retention_rules import What, pack_types
from memoryhub.core import clock

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
