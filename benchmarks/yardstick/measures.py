"""What the answers of a door are worth, over the queries of a set."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from benchmarks.quality.scores import Interval, interval_of
from benchmarks.sets.model import Collection, EvaluationSet, SetQuery
from benchmarks.yardstick.systems import Answer, MemorySystem, sampled

HALVES = {"tuned": 0, "unread": 1}
_SEED = 0
# Sessions among which it means nothing to find one
_FEW_SESSIONS = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """A query and its answer by one door."""

    query: SetQuery
    answer: Answer
    # Sessions of the right documents and of those in the answer, in order; none if finding one means nothing
    sessions: frozenset[str]
    session_order: tuple[str, ...]


Measured = Callable[[Asked], float | None]


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    heading: str
    definition: str
    # Of one query; None if it says nothing about this query
    value: Measured
    more_is_better: bool = True


def _recall_at(depth: int) -> Measured:
    def recall(asked: Asked) -> float | None:
        right = asked.query.right
        return len(right.intersection(asked.answer.keys[:depth])) / len(right) if right else None

    return recall


def _session_hit(asked: Asked) -> float | None:
    return float(not asked.sessions.isdisjoint(asked.session_order[:5])) if asked.sessions else None


def _precision(asked: Asked) -> float | None:
    keys = asked.answer.keys
    return len(asked.query.right.intersection(keys)) / len(keys) if keys and asked.query.right else None


def _silence(asked: Asked) -> float | None:
    return None if asked.query.right else float(not asked.answer.keys)


def _newest_first(asked: Asked) -> float | None:
    right, wrong = (_first(asked.answer.keys, keys) for keys in (asked.query.right, asked.query.wrong))
    if asked.query.harm not in ("superseded", "contradicted") or right == wrong:
        return None
    return float(right < wrong)


def _harm(asked: Asked) -> float | None:
    if not asked.query.harm:
        return None
    if not asked.query.right:
        return float(bool(asked.answer.keys))
    unmarked = asked.query.wrong - asked.answer.marked
    return float(_first(asked.answer.keys, unmarked) < _first(asked.answer.keys, asked.query.right))


# Place of the first of the keys; after all places if there is none
def _first(keys: Sequence[str], wanted_keys: Iterable[str]) -> int:
    return min((keys.index(key) for key in wanted_keys if key in keys), default=len(keys))


COLUMNS = (
    Column("recall_5", "R@5", "mean share of a query's right documents among the first five", _recall_at(5)),
    Column("recall_10", "R@10", "the same among the first ten", _recall_at(10)),
    Column(
        "session_5",
        "session hit@5",
        "share of queries with a right session among the first five, where there are more than five",
        _session_hit,
    ),
    Column(
        "precision",
        "precision",
        "mean share of right documents among those given, over queries that have right ones and are given any",
        _precision,
    ),
    Column("silence", "silence", "share of queries about nothing stored that are given nothing", _silence),
    Column(
        "newest",
        "newest first",
        "share of queries about something that changed for which the newer document comes before the outdated one, "
        "of those that are given either",
        _newest_first,
    ),
    Column(
        "harm",
        "harm",
        "share of cases in which a wrong document comes before any right one without a warning beside it, or anything "
        "is given where nothing is right",
        _harm,
        more_is_better=False,
    ),
)
TOKENS_HEADING = "tokens per right entry"
TOKENS_DEFINITION = "tokens of all answers, at four bytes each, over the right documents in them"


@dataclass(frozen=True, slots=True)
class Share:
    value: float
    interval: Interval
    queries: int


@dataclass(slots=True)
class DoorResult:
    """The measures of one door of one system on one set, or why there are none."""

    system: str
    door: str
    shares: dict[str, Share] = field(default_factory=dict)
    tokens_per_right: float | None = None
    harm_by_kind: dict[str, Share] = field(default_factory=dict)
    # Documents that the system did not take
    refused: int = 0
    failure: str = ""


def measure_system(system: MemorySystem, chosen: EvaluationSet, progress: Callable[[str], object]) -> list[DoorResult]:
    """Fill the system with each collection, ask all queries, and return a result for each door."""
    by_door: dict[str, list[Asked]] = {}
    refused = 0
    try:
        for collection in chosen.collections:
            progress(f"{chosen.label}: {system.name}, {collection.name}")
            with system.filled(collection) as store:
                refused += store.refused
                for name, door in store.doors.items():
                    by_door.setdefault(name, []).extend(_asked(collection, door))
    except Exception as error:  # noqa: BLE001 - a row with the reason, whatever failed in another's program
        return [DoorResult(system.name, "", failure=" ".join(f"{error}".split())[:300] or type(error).__name__)]
    return [_result(system.name, name, asked, refused) for name, asked in by_door.items()]


def _asked(collection: Collection, door: Callable[[str], Answer]) -> Iterable[Asked]:
    sessions = {document.key: document.session for document in collection.documents if document.session}
    telling = len(set(sessions.values())) > _FEW_SESSIONS
    for query in collection.queries:
        answer = door(query.text)
        right = frozenset(sessions[key] for key in query.right if key in sessions) if telling else frozenset()
        order = tuple(dict.fromkeys(sessions[key] for key in answer.keys if key in sessions))
        yield Asked(query, answer, right, order)


def _result(system: str, door: str, asked: Sequence[Asked], refused: int) -> DoorResult:
    result = DoorResult(system, door, refused=refused)
    for column in COLUMNS:
        if share := _share(asked, column.value):
            result.shares[column.key] = share
    for kind in sorted({item.query.harm for item in asked} - {""}):
        if share := _share([item for item in asked if item.query.harm == kind], _harm):
            result.harm_by_kind[kind] = share
    hits = sum(len(item.query.right.intersection(item.answer.keys)) for item in asked)
    result.tokens_per_right = sum(item.answer.tokens for item in asked) / hits if hits else None
    return result


def _share(asked: Sequence[Asked], value: Measured) -> Share | None:
    pairs = [(item.query.group, number) for item in asked if (number := value(item)) is not None]
    if not pairs:
        return None
    return Share(fmean(number for _, number in pairs), interval_of(pairs), len(pairs))


def chosen_queries(read: EvaluationSet, half: str, count: int | None) -> EvaluationSet:
    """Return the set with the queries of a half, or ``all``; at most ``count`` of them, chosen by a fixed seed."""
    pairs = [
        (collection.name, query)
        for collection in read.collections
        for query in collection.queries
        if HALVES.get(half, query.half) == query.half
    ]
    chosen = sampled(pairs, count, random.Random(_SEED))  # noqa: S311 - the same on every run
    collections = []
    for collection in read.collections:
        queries = [query for name, query in chosen if name == collection.name]
        if queries:
            collections.append(Collection(collection.name, collection.documents, queries, collection.speakers))
    return EvaluationSet(read.key, read.label, collections)
