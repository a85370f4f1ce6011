"""Move messages between file descriptors and the SDK on the event loop, and record its answers for a snapshot."""

from __future__ import annotations

import asyncio
import json
import os
import select
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from memoryhub.mcp import jsonrpc
from memoryhub.mcp.jsonrpc import Handover, MalformedError
from memoryhub.mcp.snapshot import HANDSHAKE_VERSIONS, LIST_METHODS, MODERN_VERSIONS, REPLAY_ID, Answers
from memoryhub.mcp.threads import LAST_WRITE_SECONDS

if TYPE_CHECKING:
    from memoryhub.mcp.jsonrpc import Message


_CHUNK_BYTES = 1 << 18
# Messages after which the calls run that a flood of them has started
_YIELD_EVERY = 16
_FULL_BYTES = 1 << 20
_META = "io.modelcontextprotocol/"
# After the end of input, how long to wait for each further answer.
QUIET_SECONDS_AFTER_END = 1.5


class Pump:
    def __init__(self, handover: Handover, *, stop_work: Callable[[], None]) -> None:
        # stop_work is called once, to end reads and queued calls.
        self._loop = asyncio.get_running_loop()
        self._handover = handover
        self._stop_work = stop_work
        self._open: set[object] = set()
        self._changed = asyncio.Event()
        self._ended = False
        self._stopped = False
        self.incoming = InputStream()
        self._output = OutputStream(handover.wire.outgoing, self._loop, on_broken=self.stop)

    def start(self) -> None:
        for message in self._handover.backlog:
            self._accept(message)
        if self._handover.ended:
            self._end()
        else:
            self._loop.add_reader(self._handover.wire.incoming, self._read)

    def stop(self) -> None:
        self._stopped = True
        self._end()

    async def close_when_done(self) -> None:
        """Wait for the end of input or ``stop``, then for the last answers; then end the SDK's input."""
        while not self._ended:
            await self._next_change(None)
        while self._open and not self._stopped:
            if not await self._next_change(QUIET_SECONDS_AFTER_END):
                break
        self._stop_work()
        while self._open and not self._output.broken:
            if not await self._next_change(LAST_WRITE_SECONDS):
                break
        self.incoming.end()

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._settle(message.id)
            if message.id == REPLAY_ID:
                return
        if isinstance(message, types.JSONRPCResponse):
            fields: Message = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        else:
            fields = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        self._output.write(jsonrpc.dump(fields))
        await self._output.ready()

    async def aclose(self) -> None:
        await self._output.drain()

    async def __aenter__(self) -> Pump:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _read(self) -> None:
        try:
            chunk = os.read(self._handover.wire.incoming, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        for line in self._handover.buffer.feed(chunk):
            try:
                self._accept(jsonrpc.parse(line))
            except MalformedError as malformed:
                for answer in malformed.answers:
                    self._output.write(answer)
        if not chunk:
            self._end()

    def _accept(self, message: Message) -> None:
        if "method" in message and "id" in message:
            self._open.add(message["id"])
        elif message.get("method") == "notifications/cancelled":
            # The SDK doesn't answer cancelled requests.
            self._settle((message.get("params") or {}).get("requestId"))
        item = _to_sdk(message)
        if item is not None:
            self.incoming.put(item)

    def _settle(self, request_id: object) -> None:
        if isinstance(request_id, str | int):
            self._open.discard(request_id)
            self._changed.set()

    def _end(self) -> None:
        if not self._ended:
            self._loop.remove_reader(self._handover.wire.incoming)
        self._ended = True
        self._changed.set()

    async def _next_change(self, seconds: float | None) -> bool:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        self._changed.clear()
        return True


def _to_sdk(message: Message) -> SessionMessage | None:
    # None for a malformed response.
    if "method" not in message:
        try:
            return SessionMessage(types.jsonrpc_message_adapter.validate_python(message, by_name=False))
        except ValidationError:
            return None
    if "id" in message:
        return SessionMessage(types.JSONRPCRequest.model_construct(**message))
    return SessionMessage(types.JSONRPCNotification.model_construct(**message))


class InputStream:
    def __init__(self) -> None:
        self._items: deque[SessionMessage | Exception] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._received = 0

    def put(self, item: SessionMessage | Exception) -> None:
        self._items.append(item)
        self._arrived.set()

    def end(self) -> None:
        self._ended = True
        self._arrived.set()

    async def receive(self) -> SessionMessage | Exception:
        self._received += 1
        if self._received % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
        while not self._items:
            if self._ended:
                raise anyio.EndOfStream
            self._arrived.clear()
            await self._arrived.wait()
        return self._items.popleft()

    async def aclose(self) -> None:
        self._items.clear()
        self.end()

    def __aiter__(self) -> InputStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> InputStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class OutputStream:
    """Writes bytes in order to any kind of descriptor, without blocking the event loop.

    The descriptor may be shared with other processes, so it is not made non-blocking. Instead, at most ``PIPE_BUF``
    bytes are written at once, when ``poll`` reports that they fit.
    """

    def __init__(self, descriptor: int, loop: asyncio.AbstractEventLoop, *, on_broken: Callable[[], None]) -> None:
        self.broken = False
        self._descriptor = descriptor
        self._loop = loop
        self._on_broken = on_broken
        self._pending: deque[memoryview] = deque()
        self._pending_bytes = 0
        self._waiting = False
        self._relaxed = asyncio.Event()
        self._relaxed.set()
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, data: bytes) -> None:
        if self.broken:
            return
        self._pending.append(memoryview(data))
        self._pending_bytes += len(data)
        if not self._waiting:
            self._write_some()

    async def ready(self) -> None:
        """Wait while more than a megabyte is unread."""
        if self._pending_bytes > _FULL_BYTES:
            self._relaxed.clear()
            await self._relaxed.wait()

    async def drain(self) -> None:
        """Wait until everything is written or the reader is gone."""
        while self._pending and not self.broken:
            self._relaxed.clear()
            await self._relaxed.wait()

    def _write_some(self) -> None:
        try:
            while self._pending and self._poll.poll(0):
                written = os.write(self._descriptor, self._pending[0][: select.PIPE_BUF])
                self._pending_bytes -= written
                if unwritten := self._pending[0][written:]:
                    self._pending[0] = unwritten
                else:
                    self._pending.popleft()
        except BlockingIOError:
            pass  # another process has filled the pipe
        except OSError:
            self.broken = True
            self._pending.clear()
            self._pending_bytes = 0
            self._on_broken()
        is_full = bool(self._pending)
        if is_full and not self._waiting:
            self._loop.add_writer(self._descriptor, self._write_some)
        elif self._waiting and not is_full:
            self._loop.remove_writer(self._descriptor)
        self._waiting = is_full
        if not is_full:
            self._relaxed.set()


def record(server: Server[Any]) -> Answers:
    """Return the server's answers to opening messages, without errors. Runs its own event loop."""
    return anyio.run(_record, server)


async def _record(server: Server[Any]) -> Answers:
    answers: Answers = {}
    for version in HANDSHAKE_VERSIONS:
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "snapshot", "version": "1"}}
        answers[version] = await _ask(server, {"initialize": hello, **dict.fromkeys(("ping", *LIST_METHODS))})
    for version in MODERN_VERSIONS:
        meta = {"_meta": {f"{_META}protocolVersion": version, f"{_META}clientCapabilities": {}}}
        answers[version] = await _ask(server, dict.fromkeys(["server/discover", "ping", *LIST_METHODS], meta))
    return answers


async def _ask(server: Server[Any], requests: Mapping[str, dict[str, Any] | None]) -> dict[str, str]:
    to_server, server_reads = create_context_streams[SessionMessage | Exception](len(requests))
    server_writes, from_server = create_context_streams[SessionMessage](len(requests))
    answers: dict[str, str] = {}
    async with anyio.create_task_group() as group:
        group.start_soon(server.run, server_reads, server_writes, server.create_initialization_options())
        for method, params in requests.items():
            request = types.JSONRPCRequest(jsonrpc="2.0", id=1, method=method, params=params or {})
            await to_server.send(SessionMessage(request))
            answer = (await from_server.receive()).message
            if isinstance(answer, types.JSONRPCResponse):
                answers[method] = json.dumps(answer.result, ensure_ascii=False, separators=(",", ":"))
        await to_server.aclose()
    await from_server.aclose()
    return answers
