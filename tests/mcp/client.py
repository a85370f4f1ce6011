"""A minimal client with handshake: JSON lines over pipes, without the SDK."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio.from_thread
from mcp.client.stdio import StdioServerParameters

from tests.databases import variables_of

FIXTURES = "tests.mcp.fixture_tools"
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 120.0
MODERN = "2026-07-28"
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
CLIENT = {"name": "plain client", "version": "1"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}

Message = dict[str, Any]
T = TypeVar("T")


def environment(home: Path, **changes: str) -> dict[str, str]:
    """Return the environment of a server with ``home`` and the fixture tools."""
    return {
        **os.environ,
        **variables_of(home),
        "MEMORY_HUB_TEST_TOOLS": FIXTURES,
        "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store",
        **changes,
    }


def command(*options: str) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), "mcp", *options]


def parameters(home: Path, *options: str) -> StdioServerParameters:
    # The server shares the SDK client's standard error, so it must be quiet.
    program, *words = command(*options)
    return StdioServerParameters(command=program, args=words, env=environment(home, PYTHONDEVMODE=""), cwd=ROOT)


class Client:
    """A connection: what is sent and received, whatever serves it."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._buffer = b""
        self._next_id = 0

    def send_bytes(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._writing, view) :]

    def send(self, message: Message | list[Message]) -> None:
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def request(self, method: str, params: Message | None = None) -> int:
        self._next_id += 1
        message: Message = {"jsonrpc": "2.0", "id": self._next_id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return self._next_id

    def notify(self, method: str, params: Message | None = None) -> None:
        message: Message = {"jsonrpc": "2.0", "method": method}
        self.send(message if params is None else {**message, "params": params})

    def receive(self, seconds: float = DEADLINE_SECONDS) -> Message:
        """Return the next message from the server; fail at the deadline or the end of the stream."""
        line = self._line(time.monotonic() + seconds)
        if not line:
            raise AssertionError(f"the server closed its output; it said: {self.wait()[1]}")
        message: Message = json.loads(line)
        return message

    def ask(self, method: str, params: Message | None = None) -> Message:
        """Send a request and return its answer, which must be the next message."""
        request_id = self.request(method, params)
        answer = self.receive()
        assert answer["id"] == request_id, answer
        return answer

    def initialize(self, version: str = HANDSHAKE[-1], **capabilities: Message) -> Message:
        hello = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": CLIENT}
        answer = self.ask("initialize", hello)
        self.notify("notifications/initialized")
        assert "result" in answer, answer
        result: Message = answer["result"]
        return result

    def call(self, tool: str, **arguments: Any) -> Message:
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert "result" in answer, answer
        assert "result" in answer, answer
        result: Message = answer["result"]
        return result

    def say(self, tool: str, **arguments: Any) -> str:
        return str(self.call(tool, **arguments)["content"][0]["text"])

    def refusal(self, tool: str, **arguments: Any) -> str:
        """Return the text of an answer, which must be an error."""
        result = self.call(tool, **arguments)
        assert result["isError"], result
        return str(result["content"][0]["text"])

    def data(self, tool: str, **arguments: Any) -> Message:
        """Return an answer as data; it must be no error."""
        result = self.call(tool, **arguments, format="json")
        assert not result["isError"], result
        data: Message = result["structuredContent"]
        return data

    def rest(self) -> list[Message]:
        messages = []
        while line := self._line(time.monotonic() + DEADLINE_SECONDS):
            messages.append(json.loads(line))
        return messages

    def end(self) -> tuple[int, str]:
        self.close_input()
        return self.wait()

    def close_input(self) -> None:
        raise NotImplementedError

    def wait(self) -> tuple[int, str]:
        """Return the exit code of the server that has ended, and what it said on standard error."""
        raise NotImplementedError

    def destroy(self) -> None:
        raise NotImplementedError

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._reading], [], [], left)[0]:
                raise AssertionError("no message came in time")
            chunk = os.read(self._reading, 1 << 16)
            if not chunk:
                assert not self._buffer, f"half a line: {self._buffer[:200]!r}"
                return b""
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class Process(Client):
    """A server that is started as clients start it."""

    def __init__(
        self, home: Path, *options: str, stdin: int = subprocess.PIPE, cwd: Path | None = None, **changes: str
    ) -> None:
        self.process = subprocess.Popen(
            command(*(options or (() if cwd else ("--project", "alpha")))),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(home, **changes),
            cwd=cwd or ROOT,
            bufsize=0,
        )
        assert self.process.stdout
        super().__init__(self.process.stdout.fileno(), self.process.stdin.fileno() if self.process.stdin else -1)
        self.errors = b""

    def close_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def wait(self) -> tuple[int, str]:
        code = self.process.wait(DEADLINE_SECONDS)
        assert self.process.stderr
        self.errors += self.process.stderr.read()
        return code, self.errors.decode()

    def destroy(self) -> None:
        destroy(self.process)


def destroy(process: subprocess.Popen[bytes]) -> None:
    """Kill a process unless it has ended, and close its pipes."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()


def run_async(work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    # Without asyncio's debug mode, which warns about slow steps.
    with anyio.from_thread.start_blocking_portal(backend_options={"debug": False}) as portal:
        return portal.call(work, *arguments)


def wait_until(is_so: Any, seconds: float = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
