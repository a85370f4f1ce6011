"""What the measures of one run share: the home folder, how many samples, and the filled store with its twin."""

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

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


class Door(Protocol):
    """A way in; both raise RuntimeError where the answer is not what it must be."""

    def write(self, arguments: dict[str, Any], /) -> None:
        """Write a memory."""

    def search(self, question: str, /) -> None:
        """Search."""


@dataclass(frozen=True, slots=True)
class Samples:
    """How often each thing is measured."""

    writes: int = 200
    searches: int = 200
    starts: int = 7


@dataclass
class Bench:
    """One run."""

    home: Path
    samples: Samples
    progress: Progress
    _stack: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def rest(self) -> RestServer:
        """The web server, started when it is first needed."""
        server = RestServer(self.home)
        self._stack.callback(server.stop)
        return server

    def close(self) -> None:
        """End what was started."""
        self._stack.close()


class SizedBench:
    """The part of a run that works on one store of a given size."""

    def __init__(self, bench: Bench, size: int) -> None:
        self.bench = bench
        self.size = size
        self.samples = bench.samples
        self.store: StoreId = project_store(f"bench-{size}")
        self._stack = ExitStack()
        self._next_index = 0

    @cached_property
    def twin(self) -> Twin:
        """The store's twin, empty at first."""
        twin = Twin(self.bench.home / "twins" / f"{self.size}.db")
        self._stack.callback(twin.close)
        return twin

    @cached_property
    def stdio(self) -> StdioClient:
        """An ``mcp`` process that serves this store, opened and ready."""
        client = self._stack.enter_context(StdioClient(self.bench.home, "--project", self.store.name))
        client.open()
        return client

    @contextmanager
    def door(self, name: str) -> Iterator[Door]:
        """Yield the door ``stdio`` or ``rest`` to this store; any other name is the service."""
        if name == "rest":
            with rest_client(self.bench.rest, self.store.name) as client:
                yield client
        else:
            yield self.stdio if name == "stdio" else ServiceDoor(self.store)

    def next_index(self) -> int:
        """Return the number of the next memory that is not in the store yet."""
        self._next_index += 1
        return self._next_index - 1

    def progress(self, what: str, done: int, total: int) -> None:
        """Say how far this is."""
        self.bench.progress(f"{self.size:,} memories: {what}", done, total)

    def close(self) -> None:
        """End what was started for this store."""
        self._stack.close()
