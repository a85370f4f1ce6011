"""The benchmark beside another memory server: both get the same calls in turns, so that a busy machine slows both."""

from __future__ import annotations

import json
import shlex
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connections

from memoryhub.core.errors import Invalid
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.text import compact_json
from memoryhub.management.bench import CALLS, STARTS, Client, fill, memory_fields, temporary_home

# Stands in the other server's command for an empty folder, which is deleted at the end
FOLDER = "{folder}"
_EXAMPLES = {"write": """add_note {"text": "{title} {content}"}""", "search": """find_notes {"query": "{query}"}"""}
_FIELDS = {"write": ("{title}", "{content}"), "search": ("{query}",)}


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    # JSON, with names such as ``{title}`` in its strings
    arguments: dict[str, Any]

    def filled(self, texts: dict[str, str]) -> dict[str, Any]:
        return {name: _filled(value, texts) for name, value in self.arguments.items()}


def _filled(value: Any, texts: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(inner, texts) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, texts) for inner in value]
    for name, text in texts.items() if isinstance(value, str) else ():
        value = value.replace(name, text)
    return value


def parse_call(operation: str, text: str) -> Call:
    """Parse ``TOOL JSON``, where ``operation`` is ``write`` or ``search``.

    Raises:
        Invalid: the text has another form, or its JSON has none of the operation's names.
    """
    tool, _, rest = text.strip().partition(" ")
    try:
        arguments = json.loads(rest)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise Invalid(
            f"--{operation} takes a tool and its arguments as a JSON object, such as '{_EXAMPLES[operation]}'"
        )
    if not any(name in rest for name in _FIELDS[operation]):
        names = " or ".join(_FIELDS[operation])
        raise Invalid(f"--{operation} needs {names} in its arguments, such as '{_EXAMPLES[operation]}'")
    return Call(tool, arguments)


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    # Of another server; empty for this hub
    words: tuple[str, ...]
    write: Call
    search: Call


def hub() -> Server:
    write = Call("memory_write", {"title": "{title}", "content": "{content}"})
    return Server("memory-hub", (), write, Call("memory_search", {"query": "{query}"}))


def parse_server(command: str, write: str, search: str) -> Server:
    """Return the server that a command line starts.

    Raises:
        Invalid: the command or a call has another form.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Invalid(f"--against has an unfinished quotation: {error}") from error
    if not words:
        raise Invalid("--against takes the command that starts the other server")
    name = next((Path(word).name for word in words if "=" not in word and word != "env"), words[0])
    return Server(name, tuple(words), parse_call("write", write), parse_call("search", search))


# ``median`` and ``p95`` in milliseconds, or one figure in ``value``
@dataclass(frozen=True, slots=True)
class Row:
    server: str
    operation: str
    median: float | None = None
    p95: float | None = None
    value: int | None = None


def compare(other: Server, memories: int) -> list[Row]:
    """Measure this hub and another server in turns, each with so many memories.

    Raises:
        Invalid: the other server has no such tool.
        Unavailable: a server does not start, ends, or refuses a call.
    """
    with ExitStack() as stack:
        sides = [stack.enter_context(_side(server)) for server in (hub(), other)]
        for side in sides[::-1]:
            side.require_tools()
        starts = _in_turns(sides, STARTS + 1, lambda side, _: side.start())
        clients = [stack.enter_context(side.client()) for side in sides]
        for side, client in zip(sides, clients, strict=True):
            client.open()
            side.running = client
            side.fill(memories)
        writes = _in_turns(sides, CALLS + 1, lambda side, number: side.write(memories + number))
        searches = _in_turns(sides, CALLS + 1, lambda side, number: side.search(memories * number // (CALLS + 1)))
        rows = [
            row
            for operation, found in (("start", starts), ("write", writes), ("search", searches))
            for row in _rows(operation, found)
        ]
        tokens = [Row(side.server.name, "tools/list, tokens", value=side.tokens) for side in sides]
        memory = [Row(side.server.name, "peak memory, MB", value=side.peak_megabytes()) for side in sides]
        return [*rows, *tokens, *memory]


@contextmanager
def _side(server: Server) -> Iterator[_Side]:
    if server.words:
        with tempfile.TemporaryDirectory(prefix="memory-hub-bench-", ignore_cleanup_errors=True) as folder:
            yield _Side(server, Path(folder))
    else:
        with temporary_home(keep=False) as home:
            yield _Side(server, home)


@dataclass(slots=True)
class _Side:
    server: Server
    folder: Path
    tokens: int = 0
    running: Client | None = None

    def client(self) -> Client:
        return Client(self.folder, [word.replace(FOLDER, str(self.folder)) for word in self.server.words])

    def require_tools(self) -> None:
        if not self.server.words:
            fill(1)  # creates the project
            connections.close_all()
        with self.client() as client:
            client.open()
            tools = client.tools()
        self.tokens = estimate_tokens(compact_json(tools))
        names = [tool["name"] for tool in tools]
        for call in (self.server.write, self.server.search):
            if call.tool not in names:
                raise Invalid(f"{self.server.name} has no tool {call.tool!r}; it has {', '.join(names) or 'none'}")

    # Seconds from the start of a process to the list of its tools
    def start(self) -> float:
        started = time.perf_counter()
        with self.client() as client:
            client.open()
            client.tools()
            return time.perf_counter() - started

    def fill(self, memories: int) -> None:
        for number in range(memories):
            self.write(number)

    def write(self, number: int) -> float:
        fields = memory_fields(number)
        return self._call(self.server.write, {"{title}": fields["title"], "{content}": fields["content"]})

    # Two words, because some servers look for the whole query as one text
    def search(self, number: int) -> float:
        return self._call(self.server.search, {"{query}": " ".join(memory_fields(number)["title"].split()[:2])})

    def _call(self, call: Call, texts: dict[str, str]) -> float:
        assert self.running  # noqa: S101 - set before
        return self.running.call(call.tool, call.filled(texts))

    def peak_megabytes(self) -> int | None:
        return _peak_megabytes(self.running.pid) if self.running else None


def _in_turns(sides: list[_Side], count: int, measure: Callable[[_Side, int], float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {side.server.name: [] for side in sides}
    for number in range(count):
        for side in sides if number % 2 else sides[::-1]:
            found[side.server.name].append(measure(side, number))
    return {name: seconds[1:] for name, seconds in found.items()}  # the first one warms up


def _rows(operation: str, found: dict[str, list[float]]) -> Iterator[Row]:
    for name, seconds in found.items():
        p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
        yield Row(name, operation, round(1000 * statistics.median(seconds), 2), round(1000 * p95, 2))


# Of the process and of those it started; None where there is no /proc
def _peak_megabytes(pid: int) -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    own = int(lines.get("VmHWM", "0").split()[0]) // 1024
    return own + sum(_peak_megabytes(int(child)) or 0 for child in children)
