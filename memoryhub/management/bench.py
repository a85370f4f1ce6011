"""Benchmarks: time the hub's commands and compare it with other MCP servers."""

from __future__ import annotations

import json
import os
import random
import re
import select
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, product
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from django.db import connections

from memories.embeddings.engine import NONE
from memories.schemas import MemoryWrite
from memories.services import write_memories
from memoryhub import env
from memoryhub.client.setup.entries import command_words
from memoryhub.config.current_settings import PREFIX
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.mcp.jsonrpc import HANDSHAKE_VERSIONS

STARTS = 5
CALLS = 100
ANSWER_SECONDS = 60.0
_END_SECONDS = 10.0
_STORE = project_store("bench")
_BATCH = 500
HELLO = {
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
    writes = [generated_memory(memories + number) for number in range(CALLS + 1)]
    subjects = [{"query": generated_memory(memories * number // (CALLS + 1))["title"]} for number in range(CALLS + 1)]
    with temporary_home(keep=False) as home:
        try:
            fill(memories)
        finally:
            connections.close_all()
        connect = partial(hub_client, home)
        # The first start compiles modules, and may start what later ones use
        (starts,) = _alternating(STARTS, [partial(_start_seconds, connect)])
        with hub_client(home) as client:
            client.open()
            timings = [timing("start", starts)]
            for operation, tool, calls in (
                ("write", "memory_write", writes),
                ("search", "memory_search", subjects),
                ("pack", "memory_context", subjects),
            ):
                _warm_up, *seconds = [client.timed(tool, arguments)[0] for arguments in calls]
                timings.append(timing(operation, seconds))
            return timings


def timing(operation: str, seconds: list[float]) -> Timing:
    p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
    return Timing(operation, 1000 * statistics.median(seconds), 1000 * p95, len(seconds))


# Seconds from the start of a process to its first answer
def _start_seconds(connect: Callable[[], BenchClient], _round: int, *, lists: bool = False) -> float:
    started = time.perf_counter()
    with connect() as client:
        client.open()
        if lists:
            client.ask("tools/list")
        return time.perf_counter() - started


def fill(memories: int) -> None:
    with use_store(_STORE, create=True), use_origin(source="cli", actor="bench"):
        for first in range(0, memories, _BATCH):
            batch = range(first, min(first + _BATCH, memories))
            write_memories(commands=[MemoryWrite(**generated_memory(index)) for index in batch])


# The same text on every run
def generated_memory(index: int) -> dict[str, Any]:
    words = random.Random(index).choices(_WORDS, cum_weights=_WEIGHTS, k=80)  # noqa: S311 - no secret
    return {"title": f"{' '.join(words[:5])} {index}", "content": " ".join(words[5:]), "tags": [words[0]]}


# Any MCP server over stdio
class BenchClient:
    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        patience: float = ANSWER_SECONDS,
    ) -> None:
        self.name = Path(command[0]).name
        self._patience = patience
        self._errors = folder / f"{self.name}.stderr"
        self._requests = 0
        self._buffer = b""
        with self._errors.open("wb") as errors:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own command line, or the user's
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=dict(environment),
                    cwd=folder,
                )
            except OSError as error:
                raise Unavailable(f"{command[0]!r} can't be started: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._process.stdin  # noqa: S101 - created with a pipe
        assert self._process.stdout  # noqa: S101 - created with a pipe
        with suppress(BrokenPipeError):
            self._process.stdin.close()  # which ends it
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def open(self) -> str:
        """Begin the session; return the server's name and version."""
        about = self.ask("initialize", HELLO).get("serverInfo", {})
        self._send({"method": "notifications/initialized"})
        return f"{about.get('name', self.name)} {about.get('version', '')}".strip()

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        return self.timed(tool, arguments)[1]

    def timed(self, tool: str, arguments: dict[str, Any]) -> tuple[float, str]:
        """Return the seconds that a call took, and the text of its answer."""
        started = time.perf_counter()
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        seconds = time.perf_counter() - started
        text = "\n".join(part.get("text", "") for part in result.get("content", []))
        if result.get("isError"):
            raise Unavailable(f"{tool} failed: {text[:500]}")
        return seconds, text

    @property
    def process_id(self) -> int:
        return self._process.pid

    def peak_resident_bytes(self) -> int | None:
        """Return the peak resident memory of the process and its children; None outside Linux."""
        try:
            return _peak_of_family(self._process.pid)
        except OSError:
            return None

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self._requests += 1
        self._send({"id": self._requests, "method": method, "params": params or {}})
        while True:
            answer = self._next_message()
            if "method" in answer or answer.get("id") != self._requests:
                continue
            if "error" in answer:
                raise Unavailable(f"{self.name} refused {method}: {answer['error'].get('message', answer['error'])}")
            result: dict[str, Any] = answer["result"]
            return result

    def _next_message(self) -> dict[str, Any]:
        line = self._line()
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise Unavailable(
                f"{self.name} printed a line that is not a message: {line[:80].decode('utf-8', 'replace')!r}"
            )
        return message

    def _line(self) -> bytes:
        assert self._process.stdout  # noqa: S101 - created with a pipe
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            if not select.select([descriptor], [], [], self._patience)[0]:
                raise Unavailable(f"{self.name} did not answer within {self._patience:.0f} seconds")
            chunk = os.read(descriptor, 1 << 18)
            if not chunk:
                raise Unavailable(f"{self.name} ended: {self._errors.read_text(errors='replace').strip()[-500:]}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin  # noqa: S101 - created with a pipe
        with suppress(BrokenPipeError):  # the process ended; reading its answer raises the reason
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._process.stdin.flush()


def hub_client(home: Path) -> BenchClient:
    command = [*command_words(), "mcp", "--project", _STORE.name]
    client = BenchClient(command, home, hub_environment(home))
    client.name = "memory-hub"
    return client


def hub_environment(home: Path, *, meaning: bool = False) -> dict[str, str]:
    """Return an environment whose only settings of the hub are its home, and whether it embeds texts."""
    unrelated = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    unrelated.pop("DJANGO_SETTINGS_MODULE", None)
    variables = {"MEMORY_HUB_HOME": str(home), f"{PREFIX}AUTOSTART": "off"}
    if not meaning:
        variables[f"{PREFIX}EMBEDDING_MODEL"] = NONE
    return {**unrelated, **variables}


def peak_of(process: int) -> int:
    """Return the peak resident memory of a process in bytes; raises OSError outside Linux."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def _peak_of_family(process: int) -> int:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return peak_of(process) + sum(_peak_of_family(int(child)) for child in children)


# The user's home is never opened
@contextmanager
def temporary_home(*, keep: bool) -> Iterator[Path]:
    before = os.environ.get("MEMORY_HUB_HOME")
    folder = tempfile.mkdtemp(prefix="memory-hub-bench-")
    # The settings have named the files of the user's home
    for connection in connections.all():
        named = connection.settings_dict
        named["NAME"] = str(named["NAME"]).replace(quote(str(env.home())), quote(folder))
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


FOLDER = "{folder}"
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Template:
    """A tool and its arguments, in which ``{title}``, ``{content}`` or ``{query}`` stand for the test data."""

    tool: str
    arguments: dict[str, Any]

    @classmethod
    def parse(cls, text: str, *, placeholders: tuple[str, ...]) -> Template:
        """Parse ``TOOL JSON``.

        Raises:
            Invalid: the arguments are not a JSON object, or do not contain one of the placeholders.
        """
        tool, _, template = text.strip().partition(" ")
        try:
            arguments = json.loads(template)
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            raise Invalid(f"{text[:80]!r} is not a tool's name and a JSON object of its arguments")
        if not any(f"{{{name}}}" in template for name in placeholders):
            names = " or ".join(f"{{{name}}}" for name in placeholders)
            raise Invalid(f"the arguments of {tool} do not contain {names}, so every call would be the same")
        return cls(tool, arguments)

    def filled(self, values: Mapping[str, str]) -> dict[str, Any]:
        arguments: dict[str, Any] = fill_template(self.arguments, values)
        return arguments


_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def fill_template(part: Any, values: Mapping[str, Any]) -> Any:
    """Replace placeholders in all strings of JSON data; one that is a whole string keeps the value's type."""
    if isinstance(part, dict):
        return {name: fill_template(value, values) for name, value in part.items()}
    if isinstance(part, list):
        return [fill_template(value, values) for value in part]
    if not isinstance(part, str):
        return part
    whole = _PLACEHOLDER.fullmatch(part)
    if whole and whole[1] in values:
        return values[whole[1]]
    return _PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), part)


_HUB_WRITE = Template("memory_write", {"title": "{title}", "content": "{content}"})
_HUB_SEARCH = Template("memory_search", {"query": "{query}"})


@dataclass(slots=True)
class BenchSide:
    """A server, and what was measured of it."""

    server: str
    connect: Callable[[], BenchClient] = field(repr=False)
    write: Template
    search: Template
    timings: list[Timing] = field(default_factory=list)
    tools: int = 0
    tools_tokens: int = 0
    # Searches for a memory's title whose answer had the title
    hits: int = 0
    peak_resident_bytes: int | None = None

    def as_data(self) -> dict[str, Any]:
        return {
            "server": self.server,
            "timings": self.timings,
            "tools": self.tools,
            "tools_tokens": self.tools_tokens,
            "found": self.hits,
            "peak_resident_bytes": self.peak_resident_bytes,
        }


def compare(command: str, write: Template, search: Template, memories: int) -> list[BenchSide]:
    """Measure the hub and another server; each has ``memories`` memories before the measured calls.

    ``{folder}`` in the other server's command is a temporary folder; ``write`` and ``search`` are its tools.

    Raises:
        Unavailable: a server cannot be started, ends, does not answer or refuses a call.
        Invalid: the other server does not have one of the tools.
    """
    with temporary_home(keep=False) as home, tempfile.TemporaryDirectory(prefix="memory-hub-bench-") as folder:
        words = [word.replace(FOLDER, folder) for word in _words_of(command)]
        other = BenchSide(Path(words[0]).name, partial(BenchClient, words, Path(folder), os.environ), write, search)
        hub = BenchSide("memory-hub", partial(hub_client, home), _HUB_WRITE, _HUB_SEARCH)
        with other.connect() as client:  # first, because its template may be wrong
            other.server = client.open()
            _check_tools(client, other)
            for index in range(memories):
                client.timed(write.tool, write.filled(_strings_in(index)))
        try:
            fill(memories)
        finally:
            connections.close_all()
        return _measured([hub, other], memories)


def _words_of(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Invalid(f"the command of the other server is not quoted as in a shell: {error}") from error
    if not words:
        raise Invalid("the command of the other server is not given")
    return words


def _measured(sides: list[BenchSide], memories: int) -> list[BenchSide]:
    starts = _alternating(STARTS, [partial(_start_seconds, side.connect, lists=True) for side in sides])
    with ExitStack() as stack:
        clients = [stack.enter_context(side.connect()) for side in sides]
        for client, side in zip(clients, sides, strict=True):
            side.server = client.open()
            _check_tools(client, side)
        pairs = list(zip(clients, sides, strict=True))
        writes = _alternating(CALLS, [partial(_write_call, client, side, memories) for client, side in pairs])
        searches = _alternating(CALLS, [partial(_search, client, side, memories) for client, side in pairs])
        for place, (client, side) in enumerate(pairs):
            rounds = {"start and lists": starts, "write": writes, "search": searches}
            side.timings = [timing(name, seconds[place]) for name, seconds in rounds.items()]
            side.peak_resident_bytes = client.peak_resident_bytes()
    return sides


# Calls each action with the number of its round; the first round is a warm-up. Returns the seconds of each action.
def _alternating(rounds: int, actions: list[Callable[[int], float]]) -> list[list[float]]:
    seconds = [[action(number) for action in actions] for number in range(rounds + 1)]
    return [list(of_action) for of_action in zip(*seconds[1:], strict=True)]


def _write_call(client: BenchClient, side: BenchSide, memories: int, number: int) -> float:
    return client.timed(side.write.tool, side.write.filled(_strings_in(memories + number)))[0]


def _search(client: BenchClient, side: BenchSide, memories: int, number: int) -> float:
    title = _strings_in(memories * number // (CALLS + 1))["title"]
    seconds, text = client.timed(side.search.tool, side.search.filled({"query": title}))
    side.hits += number > 0 and title in text
    return seconds


def _check_tools(client: BenchClient, side: BenchSide) -> None:
    tools = client.ask("tools/list")["tools"]
    names = [tool["name"] for tool in tools]
    for template in (side.write, side.search):
        if template.tool not in names:
            raise Invalid(f"{side.server} has no tool {template.tool!r}; it has: {', '.join(names)}")
    side.tools = len(tools)
    side.tools_tokens = len(json.dumps(tools, ensure_ascii=False, separators=(",", ":")).encode()) // _BYTES_PER_TOKEN


def _strings_in(index: int) -> dict[str, str]:
    memory = generated_memory(index)
    return {"title": memory["title"], "content": memory["content"]}
