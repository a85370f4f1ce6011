"""What the measures of a run share: the home folder, sample counts, and the filled store with its twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from benchmarks.speed.rest import RestServer, rest_client
from benchmarks.speed.service import ServiceDoor
from benchmarks.speed.stdio import StdioClient
from benchmarks.speed.twin import Twin
from memoryhub.core.stores.store import StoreId, project_store

# Called with the step, the number done and the total
Progress = Callable[[str, int, int], None]


class Door(Protocol):
    def write(self, arguments: dict[str, Any], /) -> None: ...

    def search(self, question: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Samples:
    writes: int = 200
    searches: int = 200
    starts: int = 7


@dataclass
class Bench:
    home: Path
    samples: Samples
    progress: Progress
    _stack: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def rest(self) -> RestServer:
        server = RestServer(self.home)
        self._stack.callback(server.stop)
        return server

    def close(self) -> None:
        self._stack.close()


class SizedBench:
    def __init__(self, bench: Bench, size: int) -> None:
        self.bench = bench
        self.size = size
        self.samples = bench.samples
        self.store: StoreId = project_store(f"bench-{size}")
        self._stack = ExitStack()
        self._next_index = 0

    @cached_property
    def twin(self) -> Twin:
        twin = Twin(self.bench.home / "twins" / f"{self.size}.db")
        self._stack.callback(twin.close)
        return twin

    @cached_property
    def stdio(self) -> StdioClient:
        client = self._stack.enter_context(StdioClient(self.bench.home, "--project", self.store.name))
        client.open()
        return client

    @contextmanager
    def door(self, name: str) -> Iterator[Door]:
        if name == "rest":
            with rest_client(self.bench.rest, self.store.name) as client:
                yield client
        else:
            yield self.stdio if name == "stdio" else ServiceDoor(self.store)

    def next_index(self) -> int:
        self._next_index += 1
        return self._next_index - 1

    def progress(self, what: str, done: int, total: int) -> None:
        self.bench.progress(f"{self.size:,} memories: {what}", done, total)

    def close(self) -> None:
        self._stack.close()
