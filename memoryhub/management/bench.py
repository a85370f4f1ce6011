"""A short benchmark over MCP, with a generated project in a temporary home."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from django.db import connections

from memories.embeddings.choice import NONE
from memories.schemas import MemoryWrite
from memories.services import write_memories
from memoryhub import env
from memoryhub.client.setup.entries import command_words
from memoryhub.config.layers import PREFIX
from memoryhub.core.errors import Unavailable
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.mcp.opening import HANDSHAKE_VERSIONS

STARTS = 5
CALLS = 100
_STORE = project_store("bench")
_BATCH = 500
_HELLO = {
    "protocolVersion": HANDSHAKE_VERSIONS[-1],
    "capabilities": {},
    "clientInfo": {"name": "memory-hub bench", "version": "1"},
}
_WORDS = [
    "".join(syllables) for syllables in product("ba co di fe gu ha jo ki le mu na po ri se tu vo we".split(), repeat=3)
]
# Zipf's law: as in natural text, few words are frequent and most are rare
_WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(_WORDS) + 1)))


# Milliseconds
@dataclass(frozen=True, slots=True)
class Timing:
    operation: str
    median: float
    p95: float
    samples: int


def measure(memories: int) -> list[Timing]:
    with temporary_home(keep=False) as home:
        try:
            _fill(memories)
        finally:
            connections.close_all()
        _start(home)  # compiles modules and saves the snapshot that later starts use
        starts = [_start(home) for _ in range(STARTS)]
        with Client(home) as client:
            client.open()
            return [_timing("start", starts), *_calls(client, memories)]


def _calls(client: Client, memories: int) -> Iterator[Timing]:
    writes = [_memory(memories + number) for number in range(CALLS + 1)]
    subjects = [{"query": _memory(memories * number // (CALLS + 1))["title"]} for number in range(CALLS + 1)]
    for operation, tool, calls in (
        ("write", "memory_write", writes),
        ("search", "memory_search", subjects),
        ("pack", "memory_context", subjects),
    ):
        _warm_up, *seconds = [client.call(tool, arguments) for arguments in calls]
        yield _timing(operation, seconds)


def _timing(operation: str, seconds: list[float]) -> Timing:
    p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
    return Timing(operation, 1000 * statistics.median(seconds), 1000 * p95, len(seconds))


# Seconds from the start of a process to its first answer
def _start(home: Path) -> float:
    started = time.perf_counter()
    with Client(home) as client:
        client.open()
        return time.perf_counter() - started


def _fill(memories: int) -> None:
    with use_store(_STORE, create=True), use_origin(source="cli", actor="bench"):
        for first in range(0, memories, _BATCH):
            batch = range(first, min(first + _BATCH, memories))
            write_memories(commands=[MemoryWrite(**_memory(index)) for index in batch])


# The same text on every run
def _memory(index: int) -> dict[str, Any]:
    words = random.Random(index).choices(_WORDS, cum_weights=_WEIGHTS, k=80)  # noqa: S311 - no secret
    return {"title": f"{' '.join(words[:5])} {index}", "content": " ".join(words[5:]), "tags": [words[0]]}


class Client:
    def __init__(self, home: Path) -> None:
        self._errors = home / "mcp.stderr"
        self._requests = 0
        unrelated = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                [*command_words(), "mcp", "--project", _STORE.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={
                    **unrelated,
                    "MEMORY_HUB_HOME": str(home),
                    f"{PREFIX}EMBEDDING_MODEL": NONE,
                    f"{PREFIX}AUTOSTART": "off",
                },
                cwd=home,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._process.communicate()  # closes its input, which ends it

    def open(self) -> None:
        self._ask("initialize", _HELLO)
        self._send({"method": "notifications/initialized"})

    def call(self, tool: str, arguments: dict[str, Any]) -> float:
        started = time.perf_counter()
        result = self._ask("tools/call", {"name": tool, "arguments": arguments})
        seconds = time.perf_counter() - started
        if result.get("isError"):
            raise Unavailable(f"{tool} failed: {result['content'][0]['text']}")
        return seconds

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._requests += 1
        self._send({"id": self._requests, "method": method, "params": params})
        assert self._process.stdout  # noqa: S101 - created with a pipe
        for answer in map(json.loads, self._process.stdout):
            if answer.get("id") == self._requests and "error" in answer:
                raise Unavailable(f"mcp refused {method}: {answer['error']}")
            if answer.get("id") == self._requests:
                result: dict[str, Any] = answer["result"]
                return result
        raise Unavailable(f"mcp ended: {self._errors.read_text(errors='replace').strip()[-500:]}")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin  # noqa: S101 - created with a pipe
        with suppress(BrokenPipeError):  # the process ended; reading its answer raises the reason
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._process.stdin.flush()


# The user's home is never opened
@contextmanager
def temporary_home(*, keep: bool) -> Iterator[Path]:
    before = os.environ.get("MEMORY_HUB_HOME")
    folder = tempfile.mkdtemp(prefix="memory-hub-bench-")
    os.environ["MEMORY_HUB_HOME"] = folder
    try:
        yield env.prepare_home()
    finally:
        if before is None:
            del os.environ["MEMORY_HUB_HOME"]
        else:
            os.environ["MEMORY_HUB_HOME"] = before
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
