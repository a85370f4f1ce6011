"""What the measures of a run share: the home folder, sample counts, interfaces, and the filled store with its twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import Progress as ProgressBar

from benchmarks.speed.processes import HttpServer, RestClient, StdioClient
from benchmarks.speed.twin import Twin
from memories import selectors, services
from memories.schemas import MemorySearch, MemoryWrite
from memoryhub.core.stores.store import StoreId, project_store, use_store

# Called with the step, the number done and the total
Progress = Callable[[str, int, int], None]


@contextmanager
def progress_shown() -> Iterator[Progress]:
    console = Console(stderr=True)
    with ProgressBar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


class Door(Protocol):
    def write(self, arguments: dict[str, Any], /) -> None: ...

    def search(self, question: str, /) -> None: ...


class ServiceDoor:
    """The service layer as an interface: the hub's own work, without another process."""

    def __init__(self, store: StoreId) -> None:
        self._store = store

    def write(self, arguments: dict[str, Any]) -> None:
        with use_store(self._store):
            services.write_memory(command=MemoryWrite(**arguments))

    def search(self, question: str) -> None:
        with use_store(self._store):
            if not selectors.search(command=MemorySearch(query=question)).results:
                raise RuntimeError(f"the service found nothing for {question!r}")


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
    def rest(self) -> HttpServer:
        server = HttpServer.hub(self.home)
        self._stack.callback(server.stop)
        server.start()
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
        """A window of the hub, which runs before."""
        self.bench.rest.measure()
        client = self._stack.enter_context(StdioClient(self.bench.home, "--project", self.store.name))
        client.open()
        return client

    @contextmanager
    def door(self, name: str) -> Iterator[Door]:
        if name == "rest":
            with closing(RestClient(self.bench.rest, self.store.name)) as client:
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
