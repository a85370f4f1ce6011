"""The server's side of a relay's connection, in the hub or in the relay's own process.

The first line is the relay's greeting, every other one a message.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memoryhub.core.clients import ClientEntry
from memoryhub.core.errors import HubError
from memoryhub.mcp import jsonrpc, sdk
from memoryhub.mcp.relay import PROTOCOL, STATE, STOP
from memoryhub.mcp.threads import LAST_WRITE_SECONDS, READS_AT_ONCE, STOPPING, THREAD_END_SECONDS, Lanes, Workers

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.shared.message import SessionMessage

    from memoryhub.mcp.binding import ConnectionState
    from memoryhub.mcp.calls import Calls
    from memoryhub.mcp.jsonrpc import Message

logger = logging.getLogger(__name__)

TEST_TOOLS_VARIABLE = "MEMORY_HUB_TEST_TOOLS"
# After the end of input, how long to wait for each further answer.
QUIET_SECONDS_AFTER_END = 1.5
# Messages after which the calls run that a flood of them has started
_YIELD_EVERY = 16
_FULL_BYTES = 1 << 20
_SWITCH_INTERVAL_SECONDS = 0.0005

# The calls of the connection that a handler serves
_current_calls: ContextVar[Calls] = ContextVar("current_calls")


def set_up(*, http: bool) -> None:
    """Set up Django, and import what serves MCP."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings_store")
    with sdk.uncollected():
        sdk.load(http=http)
        import django

        with sdk.deferred_models():
            django.setup()
        load(http=http)


def load(*, http: bool) -> None:
    """Import what serves MCP: the SDK, with its HTTP server if asked for, and the tools of all apps."""
    sdk.load(http=http)
    with sdk.deferred_models():
        from memoryhub.mcp import calls, listing, server  # noqa: F401

        listing.load_tools()
        if http:
            from memoryhub.mcp import host  # noqa: F401


def open_lanes(*, writers: int = 1, readers: int = READS_AT_ONCE) -> Lanes:
    from django.db import connections

    from memoryhub.core.stores.store import detach, project_store

    return Lanes(
        on_thread_end=connections.close_all,
        leave=lambda project: detach(project_store(project).alias),
        writers=writers,
        readers=readers,
    )


class Windows:
    """The relays that are connected to this process."""

    def __init__(self, lanes: Callable[[], Lanes], load: Callable[[], None]) -> None:
        self.lanes = lanes
        self._load = load
        self._loading: asyncio.Task[None] | None = None
        self._servers: dict[str, Server[Any]] = {}
        self.connections: set[Connection] = set()
        self.is_closed = False

    async def ready(self) -> None:
        """Wait until the SDK is imported."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        await asyncio.shield(self._loading)

    def server(self, profile: str) -> Server[Any]:
        from memoryhub.mcp import listing
        from memoryhub.mcp.server import build_server

        if profile not in self._servers:
            self._servers[profile] = server = build_server(lambda _: _current_calls.get(), profile=profile)
            listing.extend_for_tests(server)
        return self._servers[profile]

    async def close(self) -> None:
        """End all connections: what runs is finished, and what has not begun is left to the next hub."""
        self.is_closed = True
        tasks = [connection.task for connection in self.connections]
        for connection in list(self.connections):
            connection.leave()
        if tasks:
            await asyncio.wait(tasks)


class Connection(asyncio.Protocol):
    """A relay's connection, and the SDK's stream of its answers."""

    task: asyncio.Task[None]

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # The start of a line
        self._pending = bytearray()
        self._incoming = _Incoming()
        self._has_greeting = False
        # Requests without an answer, with the relay's numbers of those that call tools
        self._open: dict[object, str] = {}
        self._state = b""
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_ended = False
        self._is_stopped = False
        self._is_broken = False
        # The hub ends, and the relay turns to the next one
        self._is_leaving = False
        self.closed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        transport.set_write_buffer_limits(high=_FULL_BYTES)

    def data_received(self, data: bytes) -> None:
        for line in jsonrpc.whole_lines(self._pending, data):
            if self._has_greeting:
                self._accept(line)
            else:
                self._has_greeting = True
                self.task = asyncio.create_task(self._serve(line))
                self._windows.connections.add(self)

    def eof_received(self) -> bool:
        self._end()
        return self._has_greeting  # its answers can still be written

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_broken = True
        self._writable.set()
        self.stop()
        self.closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def stop(self) -> None:
        self._is_stopped = True
        self._end()

    def leave(self) -> None:
        self._is_leaving = True
        self.stop()

    def _end(self) -> None:
        self._is_ended = True
        self._changed.set()

    def _accept(self, line: bytes) -> None:
        if line == STOP:
            self.stop()
            return
        number, _, text = line.partition(b"{")
        message: Message = json.loads(b"{" + text)
        if "method" in message and "id" in message:
            self._open[message["id"]] = number.decode().strip()
        elif message.get("method") == "notifications/cancelled":
            # The SDK doesn't answer cancelled requests.
            self._settle((message.get("params") or {}).get("requestId"))
        self._incoming.put(message)

    def _settle(self, request_id: object) -> None:
        if isinstance(request_id, str | int):
            self._open.pop(request_id, None)
            self._changed.set()

    async def _serve(self, line: bytes) -> None:
        try:
            greeting = json.loads(line)
            refused = self._windows.is_closed or not _can_serve(greeting)
            answer = {"refused": refused, "notice": "" if refused else _notice_for(greeting["version"])}
            self._transport.write(jsonrpc.dump(answer))
            if not refused:
                await self._windows.ready()
                await self._converse(greeting)
        except Exception:
            logger.exception("a window could not be served")
        finally:
            self._transport.close()
            self._windows.connections.discard(self)

    async def _converse(self, greeting: dict[str, Any]) -> None:
        from memoryhub.mcp.binding import Binding, ConnectionState, TurnKeepers
        from memoryhub.mcp.calls import Calls, Questions

        workers, questions = Workers(self._windows.lanes()), Questions()
        binding = Binding(greeting["project"], Path(greeting["directory"]))
        keepers = TurnKeepers(binding, workers, ConnectionState(**greeting["state"]))
        calls = Calls(workers, binding, keepers, questions)
        calls.note_state = self._note_state
        calls.key_of = lambda request: self._key_of(request, greeting["connection"])
        entry = _enter(greeting["pid"])
        if entry:
            calls.describe_client = entry.describe

        def stop_work() -> None:
            questions.stop()
            workers.stop()

        _current_calls.set(calls)
        server = self._windows.server(greeting["profile"])
        try:
            await asyncio.gather(self._run_sdk(server), self._close_when_done(stop_work))
        finally:
            with suppress(HubError):
                ending = Workers(self._windows.lanes())
                await ending.run(lambda _: keepers.leave_all(), writes=True, project=binding.lane)
            if entry:
                entry.close()

    # Empty for a request that was cancelled meanwhile: two of these are not the same call.
    def _key_of(self, request_id: object, connection: str) -> str:
        number = self._open.get(request_id)
        return f"{connection}-{number}" if number else ""

    # The next hub continues in this session.
    def _note_state(self, state: ConnectionState) -> None:
        line = STATE + jsonrpc.dump(asdict(state))
        if line != self._state:
            self._state = line
            self._transport.write(line)

    async def _run_sdk(self, server: Server[Any]) -> None:
        try:
            await server.run(self._incoming, self, server.create_initialization_options())
        finally:
            self.stop()

    async def _close_when_done(self, stop_work: Callable[[], None]) -> None:
        """Wait for the end of input or ``stop``, then for the last answers; then end the SDK's input."""
        while not self._is_ended:
            await self._next_change(None)
        while self._open and not self._is_stopped:
            if not await self._next_change(QUIET_SECONDS_AFTER_END):
                break
        stop_work()
        while self._open and not self._is_broken:
            if not await self._next_change(LAST_WRITE_SECONDS):
                break
        self._incoming.end()

    async def _next_change(self, seconds: float | None) -> bool:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    async def send(self, item: SessionMessage, /) -> None:
        import mcp_types as types

        message = item.message
        if isinstance(message, types.JSONRPCResponse):
            fields: Message = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        else:
            fields = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        line = jsonrpc.dump(fields)
        # The relay asks the next hub for what this one stopped. What is dropped by mistake is only asked twice.
        if not (self._is_broken or (self._is_leaving and STOPPING.encode() in line)):
            self._transport.write(line)
        if "method" not in fields:
            self._settle(fields["id"])
        await self._writable.wait()

    async def aclose(self) -> None:
        await self._writable.wait()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


# The SDK's stream of a client's messages.
class _Incoming:
    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._received = 0

    def put(self, message: Message) -> None:
        self._messages.append(message)
        self._arrived.set()

    def end(self) -> None:
        self._ended = True
        self._arrived.set()

    async def aclose(self) -> None:
        self._messages.clear()
        self.end()

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage:
        self._received += 1
        if self._received % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
        while True:
            while not self._messages:
                if self._ended:
                    raise StopAsyncIteration
                self._arrived.clear()
                await self._arrived.wait()
            if item := _to_sdk(self._messages.popleft()):
                return item

    receive = __anext__

    async def __aenter__(self) -> _Incoming:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _to_sdk(message: Message) -> SessionMessage | None:
    # None for a malformed response.
    import mcp_types as types
    from mcp.shared.message import SessionMessage
    from pydantic import ValidationError

    if "method" not in message:
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_python(message, by_name=False))
        except ValidationError:
            return None
    if "id" in message:
        return SessionMessage(types.JSONRPCRequest.model_construct(**message))
    return SessionMessage(types.JSONRPCNotification.model_construct(**message))


def _can_serve(greeting: Message) -> bool:
    from memoryhub.config.current_settings import variables_of_settings

    names = [*variables_of_settings(), "MEMORY_HUB_IDENTITY", TEST_TOOLS_VARIABLE]
    # Django has set this process's time zone, which is the machine's unless a variable names another
    there = {"TZ": os.environ.get("TZ"), **greeting["variables"]}
    is_alike = all(there.get(name) == os.environ.get(name) for name in ("TZ", *names))
    return is_alike and greeting["protocol"] == PROTOCOL


def _notice_for(version: str) -> str:
    from memoryhub.ops.serving.process import find_running

    running = find_running()
    return running.upgrade_to(version) if running else ""


def _enter(pid: int) -> ClientEntry | None:
    """Count a relay among the connected clients, for whom the hub is kept running."""
    try:
        return ClientEntry(pid)
    except OSError as error:
        logger.warning("a client can't be counted among the connected: %s", error)
        return None


@contextmanager
def listening(path: Path) -> Iterator[socket.socket | None]:
    """Listen for relays at a path; None where it can't be a socket's, and each relay then serves itself."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.unlink(missing_ok=True)  # of the hub before: this one has the home's lock
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
    except OSError as error:
        logger.warning("each window serves itself, without the hub: %s", error)
        listener.close()
        yield None
        return
    try:
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def serve_here() -> tuple[socket.socket, Callable[[], None]]:
    """Serve one relay in a thread of its process; return its end of the connection, and what waits for the server."""
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    relays, here = socket.socketpair()
    thread = threading.Thread(target=lambda: asyncio.run(_serve_one(here), debug=False), name="memory-hub-server")
    thread.start()
    return relays, thread.join


async def _serve_one(here: socket.socket) -> None:
    lanes = open_lanes()
    windows = Windows(lambda: lanes, lambda: None)
    loop = asyncio.get_running_loop()
    _, connection = await loop.connect_accepted_socket(lambda: Connection(windows), here)
    await connection.closed.wait()
    await asyncio.gather(*(open_connection.task for open_connection in windows.connections))
    lanes.join(THREAD_END_SECONDS)
