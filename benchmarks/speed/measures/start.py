"""How soon a new ``mcp`` process answers, with the snapshot of an earlier start and without one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.speed import corpus
from benchmarks.speed.bench import Bench
from benchmarks.speed.figures import Amount, Figure, Unit, latency
from benchmarks.speed.stdio import Era, StdioClient
from benchmarks.speed.timing import seconds_of
from memories import services
from memories.schemas import MemoryWrite
from memoryhub.core.stores.store import project_store, use_store

_STORE = project_store("bench-start")
_MEMORIES = 100
_STEPS = {"opening": "first answer", "lists": "tools/list answered", "call": "first search answered"}
_WITH = {"snapshot": "", "first": ", no snapshot"}
_BARE = "python -c pass"

_Case = tuple[str, Era]


def measure_starts(bench: Bench) -> Iterator[Figure]:
    _make_store()
    cases = [(snapshot, era) for snapshot in _WITH for era in Era]
    found: dict[_Case, list[dict[str, float]]] = {case: [] for case in cases}
    interpreter: list[float] = []
    _to_call(bench, cases[0])  # compiles modules on their first import, and writes the first snapshot
    for number in range(bench.samples.starts):
        bench.progress("starts", number, bench.samples.starts)
        interpreter.append(seconds_of(_start_python))
        for case in cases:
            found[case].append({**_to_lists(bench, case), "call": _to_call(bench, case)})
    for case in cases:
        yield from _figures(case, found[case], latency(interpreter))


def _figures(case: _Case, taken: list[dict[str, float]], interpreter: Amount) -> Iterator[Figure]:
    snapshot, era = case
    for step, label in _STEPS.items():
        amount = latency([seconds[step] for seconds in taken])
        key, text = f"start.{step}.{snapshot}.{era}", f"{label} ({era}{_WITH[snapshot]})"
        yield Figure(key, text, Unit.MILLISECONDS, amount, None, interpreter, _BARE)


def _make_store() -> None:
    with use_store(_STORE, create=True):
        services.write_memories(commands=[MemoryWrite(**corpus.arguments(index)) for index in range(_MEMORIES)])


def _start_python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _start(bench: Bench, case: _Case) -> StdioClient:
    snapshot, era = case
    if snapshot == "first":
        shutil.rmtree(bench.home / "cache", ignore_errors=True)
    return StdioClient(bench.home, "--project", _STORE.name, era=era)


def _to_lists(bench: Bench, case: _Case) -> dict[str, float]:
    started = time.perf_counter()
    with _start(bench, case) as client:
        client.open()
        opening = time.perf_counter() - started
        client.ask("tools/list")
        return {"opening": opening, "lists": time.perf_counter() - started}


# The process writes its snapshot when it ends, after the time is taken.
def _to_call(bench: Bench, case: _Case) -> float:
    started = time.perf_counter()
    with _start(bench, case) as client:
        client.open()
        client.search(corpus.question(0))
        return time.perf_counter() - started
