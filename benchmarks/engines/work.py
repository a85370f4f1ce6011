"""What one process does in one database: ``python -m benchmarks.engines.work ACT STORE NUMBER``; prints JSON.

Times are in seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import django

_BATCH = 100


def create(store: str, number: int) -> dict[str, Any]:
    """Create stores; in a new home the first one also makes the template."""
    from memoryhub.core.stores.store import project_store, use_store

    def one(index: int) -> None:
        with use_store(project_store(f"{store}-{index}"), create=True):
            pass

    return _timed(one, number)


def open_all(store: str, number: int) -> dict[str, Any]:
    """Open stores that this process has not opened, and read the head of each."""
    from memoryhub.core import log
    from memoryhub.core.stores.store import project_store, use_store

    def one(index: int) -> None:
        with use_store(project_store(f"{store}-{index}")):
            log.head()

    return _timed(one, number)


def fill(store: str, number: int) -> dict[str, Any]:
    from benchmarks.speed.corpus import arguments
    from memories import services
    from memories.schemas import MemoryWrite
    from memoryhub.core.stores.store import project_store, use_store

    def one(batch: int) -> None:
        indexes = range(batch * _BATCH, min(number, (batch + 1) * _BATCH))
        services.write_memories(commands=[MemoryWrite(**arguments(index)) for index in indexes])

    with use_store(project_store(store), create=True):
        return _timed(one, -(-number // _BATCH))


def write(store: str, number: int) -> dict[str, Any]:
    """Write for ``number`` seconds from the next line of standard input on; each process writes texts of its own."""
    from benchmarks.speed.bench import ServiceDoor
    from benchmarks.speed.corpus import arguments
    from memoryhub.core.errors import HubError
    from memoryhub.core.stores.store import project_store, use_store

    door = ServiceDoor(project_store(store))
    with use_store(project_store(store), create=True):
        pass
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    seconds: list[float] = []
    failures, index, until = 0, os.getpid() * 1_000_000, time.monotonic() + number
    while time.monotonic() < until:
        index += 1
        given, started = arguments(index), time.perf_counter()
        try:
            door.write(given)
            seconds.append(time.perf_counter() - started)
        except HubError:
            failures += 1
    return {"seconds": seconds, "failures": failures}


def search(store: str, number: int) -> dict[str, Any]:
    from benchmarks.speed.bench import ServiceDoor
    from benchmarks.speed.corpus import question
    from memoryhub.core.stores.store import project_store

    door = ServiceDoor(project_store(store))
    door.search(question(0))
    return _timed(lambda index: door.search(question(index)), number)


def check(store: str, _number: int) -> dict[str, Any]:
    """Verify the chain, and that no position is missing."""
    from memoryhub.core import log
    from memoryhub.core.stores import rows
    from memoryhub.core.stores.store import project_store, use_store

    with use_store(project_store(store)):
        count, last = rows.fetch("SELECT count(*), coalesce(max(position), 0) FROM raw_events")[0]
        return {"events": count, "gapless": count == last, "chain_holds": log.verify().ok}


def _timed(act: Callable[[int], object], number: int) -> dict[str, Any]:
    seconds = []
    for index in range(number):
        started = time.perf_counter()
        act(index)
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds}


ACTS = {"create": create, "open": open_all, "fill": fill, "write": write, "search": search, "check": check}

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings_store")
    django.setup()
    json.dump(ACTS[sys.argv[1]](sys.argv[2], int(sys.argv[3])), sys.stdout)
