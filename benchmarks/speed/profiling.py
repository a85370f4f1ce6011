from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

from benchmarks.speed import corpus
from benchmarks.speed.bench import SizedBench
from benchmarks.speed.figures import ProfileRow
from benchmarks.speed.service import ServiceDoor

_WRITES = 500
_ROWS = 15
_PACKAGE_PARTS = 3

Function = tuple[str, int, str]


def profile_writes(sized: SizedBench) -> list[ProfileRow]:
    door = ServiceDoor(sized.store)
    memories = [corpus.arguments(sized.next_index()) for _ in range(_WRITES)]
    profile = cProfile.Profile()
    with profile:
        for memory in memories:
            door.write(memory)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # what print_stats prints, as data
    rows = [ProfileRow(_name(function), calls, own, total) for function, (_, calls, own, total, _) in stats.items()]
    return sorted(rows, key=lambda row: row.own_seconds, reverse=True)[:_ROWS]


def _name(function: Function) -> str:
    file, line, name = function
    return name if file == "~" else f"{'/'.join(Path(file).parts[-_PACKAGE_PARTS:])}:{line} {name}"
