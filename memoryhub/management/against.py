"""The benchmark of another memory server beside the hub: the same steps, alternating call by call."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from django.db import connections

from memoryhub.core.errors import Invalid
from memoryhub.management.bench import (
    CALLS,
    STARTS,
    Client,
    Timing,
    fill,
    generated_memory,
    hub_client,
    temporary_home,
    timing,
)

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
        arguments: dict[str, Any] = _filled(self.arguments, values)
        return arguments


def _filled(part: Any, values: Mapping[str, str]) -> Any:
    if isinstance(part, dict):
        return {name: _filled(value, values) for name, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, values) for value in part]
    if isinstance(part, str):
        for name, value in values.items():
            part = part.replace(f"{{{name}}}", value)
    return part


_HUB_WRITE = Template("memory_write", {"title": "{title}", "content": "{content}"})
_HUB_SEARCH = Template("memory_search", {"query": "{query}"})


@dataclass(slots=True)
class Side:
    """A server, and what was measured of it."""

    server: str
    connect: Callable[[], Client] = field(repr=False)
    write: Template
    search: Template
    timings: list[Timing] = field(default_factory=list)
    tools: int = 0
    tools_tokens: int = 0
    # Searches for a memory's title whose answer had the title
    found: int = 0
    peak_resident_bytes: int | None = None

    def as_data(self) -> dict[str, Any]:
        names = ("server", "timings", "tools", "tools_tokens", "found", "peak_resident_bytes")
        return {name: getattr(self, name) for name in names}


def compare(command: str, write: Template, search: Template, memories: int) -> list[Side]:
    """Measure the hub and another server; each has ``memories`` memories before the measured calls.

    Args:
        command: of the other server; ``{folder}`` in it is a temporary folder.
        write: its tool that stores a memory.
        search: its tool that searches.
        memories: written to the hub in bulk, and to the other server one by one.

    Raises:
        Unavailable: a server cannot be started, ends, does not answer or refuses a call.
        Invalid: the other server does not have one of the tools.
    """
    with temporary_home(keep=False) as home, tempfile.TemporaryDirectory(prefix="memory-hub-bench-") as folder:
        words = [word.replace(FOLDER, folder) for word in _words_of(command)]
        other = Side(Path(words[0]).name, partial(Client, words, Path(folder), os.environ), write, search)
        hub = Side("memory-hub", partial(hub_client, home), _HUB_WRITE, _HUB_SEARCH)
        with other.connect() as client:  # first, because its template may be wrong
            other.server = client.open()
            _check_tools(client, other)
            for index in range(memories):
                client.timed(write.tool, write.filled(_values(index)))
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


def _measured(sides: list[Side], memories: int) -> list[Side]:
    starts = _alternating(STARTS, [partial(_start, side) for side in sides])
    with ExitStack() as stack:
        clients = [stack.enter_context(side.connect()) for side in sides]
        for client, side in zip(clients, sides, strict=True):
            side.server = client.open()
            _check_tools(client, side)
        pairs = list(zip(clients, sides, strict=True))
        writes = _alternating(CALLS, [partial(_write, client, side, memories) for client, side in pairs])
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


def _start(side: Side, _number: int) -> float:
    started = time.perf_counter()
    with side.connect() as client:
        client.open()
        client.ask("tools/list", {})
        return time.perf_counter() - started


def _write(client: Client, side: Side, memories: int, number: int) -> float:
    return client.timed(side.write.tool, side.write.filled(_values(memories + number)))[0]


def _search(client: Client, side: Side, memories: int, number: int) -> float:
    title = _values(memories * number // (CALLS + 1))["title"]
    seconds, text = client.timed(side.search.tool, side.search.filled({"query": title}))
    side.found += number > 0 and title in text
    return seconds


def _check_tools(client: Client, side: Side) -> None:
    tools = client.ask("tools/list", {})["tools"]
    names = [tool["name"] for tool in tools]
    for template in (side.write, side.search):
        if template.tool not in names:
            raise Invalid(f"{side.server} has no tool {template.tool!r}; it has: {', '.join(names)}")
    side.tools = len(tools)
    side.tools_tokens = len(json.dumps(tools, ensure_ascii=False, separators=(",", ":")).encode()) // _BYTES_PER_TOKEN


def _values(index: int) -> dict[str, str]:
    memory = generated_memory(index)
    return {"title": memory["title"], "content": memory["content"]}
