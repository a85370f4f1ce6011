"""Writes and searches through an interface, each followed by the same call on the bare twin."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed import corpus
from benchmarks.speed.bench import Door, SizedBench
from benchmarks.speed.figures import BARE, Figure, Unit
from benchmarks.speed.timing import CPU, WALL, WARM_UP, Clock, interleave, seconds_by
from memoryhub.core.stores.store import use_store

_LABELS = {
    "service": "in the service",
    "cpu": "in the service, CPU time",
    "stdio": "through stdio",
    "rest": "through REST",
}
# ``cpu`` is the service, measured in CPU time.
DOORS = tuple(_LABELS)


def measure_writes(sized: SizedBench, *, door: str) -> Iterator[Figure]:
    sized.progress(f"writes {_LABELS[door]}", 0, 1)
    clock = CPU if door == "cpu" else WALL
    with sized.door(door) as way:
        hub, bare = interleave(sized.samples.writes, lambda: _write(way, sized, clock), lambda: _follow(sized, clock))
    with use_store(sized.store):
        sized.twin.check()
    label = f"write {_LABELS[door]}"
    yield Figure(f"write.{door}", label, Unit.MILLISECONDS, hub, sized.size, bare, BARE)


def _write(way: Door, sized: SizedBench, clock: Clock) -> float:
    return seconds_by(clock, way.write, corpus.arguments(sized.next_index()))


def _follow(sized: SizedBench, clock: Clock) -> float:
    with use_store(sized.store):
        return sized.twin.follow(clock)


def measure_searches(sized: SizedBench, *, door: str) -> Iterator[Figure]:
    sized.progress(f"searches {_LABELS[door]}", 0, 1)
    questions = _questions(sized)
    asked, ranked = iter(questions), iter(questions)
    clock = CPU if door == "cpu" else WALL
    with sized.door(door) as way:
        hub, bare = interleave(
            sized.samples.searches,
            lambda: seconds_by(clock, way.search, next(asked)),
            lambda: sized.twin.search(next(ranked), clock),
        )
    label = f"search {_LABELS[door]}"
    yield Figure(f"search.{door}", label, Unit.MILLISECONDS, hub, sized.size, bare, BARE)


def _questions(sized: SizedBench) -> list[str]:
    count = sized.samples.searches + WARM_UP
    return [corpus.question(sized.size * number // count) for number in range(count)]
