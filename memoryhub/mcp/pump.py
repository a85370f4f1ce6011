"""Move messages between the wire and the SDK on the event loop, without threads.

The SDK's own transport drops what it cannot parse, so that the client waits forever; here every line is answered.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from memoryhub.mcp import envelope
from memoryhub.mcp.envelope import MalformedError
from memoryhub.mcp.opening import REPLAY_ID
from memoryhub.mcp.streams import Incoming, Output
from memoryhub.mcp.threads import LAST_WRITE_SECONDS
from memoryhub.mcp.wire import Handover, Overlong

if TYPE_CHECKING:
    from memoryhub.mcp.envelope import Message

_CHUNK_BYTES = 1 << 18
# After the end of input, how long to wait for each further answer.
QUIET_SECONDS_AFTER_END = 1.5


class Pump:
    """A connection: its unanswered requests, and how it closes."""

    def __init__(self, handover: Handover, *, stop_work: Callable[[], None]) -> None:
        # stop_work is called once, to end reads and queued calls.
        self._loop = asyncio.get_running_loop()
        self._handover = handover
        self._stop_work = stop_work
        self._open: set[object] = set()
        self._changed = asyncio.Event()
        self._ended = self._stopped = False
        self.incoming = Incoming()
        self._output = Output(handover.wire.outgoing, self._loop, on_broken=self.stop)

    def start(self) -> None:
        """Process the backlog of the front, then read on."""
        for message in self._handover.backlog:
            self._accept(message)
        if self._handover.ended:
            self._end()
        else:
            self._loop.add_reader(self._handover.wire.incoming, self._read)

    def stop(self) -> None:
        """Stop reading, and close after the running write."""
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
        self._output.write(envelope.dump(_to_wire(message)))
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
        buffer = self._handover.buffer
        for line in buffer.feed(chunk) if chunk else buffer.finish():
            self._take(line)
        if not chunk:
            self._end()

    def _take(self, line: bytes | Overlong) -> None:
        try:
            self._accept(envelope.parse(line))
        except MalformedError as malformed:
            for answer in malformed.answers:
                self._output.write(answer)

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
    kind = types.JSONRPCRequest if "id" in message else types.JSONRPCNotification
    return SessionMessage(kind.model_construct(**message))


def _to_wire(message: Any) -> Message:
    if isinstance(message, types.JSONRPCResponse):
        return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
    wire: Message = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return wire
