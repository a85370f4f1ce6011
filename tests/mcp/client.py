"""A minimal client with handshake: JSON lines over pipes, without the SDK."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from unittest import mock

import anyio.from_thread
from django.db import connections
from django.test import SimpleTestCase
from mcp.client.stdio import StdioServerParameters

from memoryhub.core import tools
from memoryhub.mcp.options import parse
from memoryhub.mcp.registry import load_tools
from memoryhub.mcp.serve import assemble
from memoryhub.mcp.wire import Handover, Wire
from tests.databases import at_home, remove_home, variables_of
from tests.home import UNMEASURED, run_home
from tests.support import StoresTestCase, forget_all_stores, share_template

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
        message = json.loads(line)
        assert isinstance(message, dict)
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
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def call(self, tool: str, **arguments: Any) -> Message:
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert "result" in answer, answer
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def say(self, tool: str, **arguments: Any) -> str:
        text = self.call(tool, **arguments)["content"][0]["text"]
        assert isinstance(text, str)
        return text

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
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()


class Server(Client):
    """A server in this process, with the pipes and the pump of a real one; the home is the current one."""

    def __init__(self, *options: str, cwd: Path | None = None) -> None:
        given, self._requests = os.pipe()
        self._answers, taken = os.pipe()
        super().__init__(self._answers, self._requests)
        self._open = {self._requests, self._answers}
        self._ends = (given, taken)
        chosen = parse([*(options or (() if cwd else ("--project", "alpha")))])
        self._hub = assemble(chosen, cwd or ROOT, [])
        self._errors: list[str] = []
        self._thread = threading.Thread(target=self._serve, name="mcp server of a test")
        self._thread.start()

    def _serve(self) -> None:
        try:
            with asyncio.Runner(debug=False) as runner:
                runner.run(self._hub.serve(Handover(Wire(*self._ends)), signals=()))
            self._hub.keepers.leave_all()
        except BaseException:  # noqa: BLE001 - the test gets it
            self._errors.append(traceback.format_exc())
        finally:
            connections.close_all()
            for end in self._ends:
                os.close(end)

    def close_input(self) -> None:
        self._close(self._requests)

    def wait(self) -> tuple[int, str]:
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive(), "the server goes on"
        return len(self._errors), "".join(self._errors)

    def destroy(self) -> None:
        self._close(self._requests)
        self._close(self._answers)
        self.wait()

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)


class McpTestCase(StoresTestCase):
    """Servers in this process, which share a home per class."""

    # A module whose tools the servers have besides their own
    tools_module: ClassVar[str] = FIXTURES
    home: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.home = Path(tempfile.mkdtemp(prefix="home-", dir=run_home()))
        cls.addClassCleanup(remove_home, cls.home)
        cls.enterClassContext(at_home(cls.home))
        cls.addClassCleanup(forget_all_stores)
        share_template(cls.home)
        cls.enterClassContext(more_tools(cls.tools_module))

    @classmethod
    def share_server(cls, *options: str, cwd: Path | None = None) -> Server:
        server = Server(*options, cwd=cwd)
        cls.addClassCleanup(server.destroy)
        server.initialize()
        return server

    def start(self, *options: str, cwd: Path | None = None, **changes: str) -> Server:
        """Start a server; it and those after it have the changes in their environment until the test ends."""
        self.enterContext(mock.patch.dict(os.environ, changes))
        server = Server(*options, cwd=cwd)
        self.addCleanup(server.destroy)
        return server

    def connect(self, *options: str, cwd: Path | None = None, **changes: str) -> Server:
        server = self.start(*options, cwd=cwd, **changes)
        server.initialize()
        return server


class ProcessTestCase(SimpleTestCase):
    """Servers as clients start them, which share a home per class, so that only the first one starts slowly."""

    home: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.home = Path(tempfile.mkdtemp())
        cls.addClassCleanup(remove_home, cls.home)

    def start(self, *options: str, **settings: Any) -> Process:
        server = Process(settings.pop("home", self.home), *options, **{**UNMEASURED, **settings})
        self.addCleanup(server.destroy)
        return server

    def connect(self, *options: str, **settings: Any) -> Process:
        server = self.start(*options, **settings)
        server.initialize()
        return server

    def keep_snapshot(self, *options: str) -> Path:
        server = self.connect(*options)
        server.end()
        (path,) = (self.home / "cache").glob("mcp-*.json")
        return path


@contextmanager
def more_tools(module: str) -> Iterator[None]:
    """Let servers in this process have a module's tools besides their own, or none, inside the block."""
    load_tools()
    with ExitStack() as stack:
        for registered in (tools._tools, tools._aliases, tools._resources, tools._prompts):
            own = {name: found for name, found in registered.items() if not re.match(r"(test|old)_|test:", name)}
            stack.enter_context(mock.patch.dict(registered, own, clear=True))
        stack.enter_context(mock.patch.dict(os.environ, MEMORY_HUB_TEST_TOOLS=module))
        if module:
            importlib.reload(importlib.import_module(module))
        yield


def run_async(work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    # Without asyncio's debug mode, which warns about slow steps.
    with anyio.from_thread.start_blocking_portal(backend_options={"debug": False}) as portal:
        return portal.call(work, *arguments)


def wait_until(is_so: Any, seconds: float = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
