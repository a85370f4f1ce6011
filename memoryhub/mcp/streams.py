"""Streams between the wire and the SDK: a queue of messages, and non-blocking output to a file descriptor."""

from __future__ import annotations

import asyncio
import os
import select
from collections import deque
from collections.abc import Callable

import anyio
from mcp.shared.message import SessionMessage

_YIELD_EVERY = 16
_FULL_BYTES = 1 << 20


class Incoming:
    def __init__(self) -> None:
        self._items: deque[SessionMessage | Exception] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._taken = 0

    def put(self, item: SessionMessage | Exception) -> None:
        self._items.append(item)
        self._arrived.set()

    def end(self) -> None:
        self._ended = True
        self._arrived.set()

    async def receive(self) -> SessionMessage | Exception:
        self._taken += 1
        if self._taken % _YIELD_EVERY == 0:
            await asyncio.sleep(0)  # let the calls run that a flood of messages has started
        while not self._items:
            if self._ended:
                raise anyio.EndOfStream
            self._arrived.clear()
            await self._arrived.wait()
        return self._items.popleft()

    async def aclose(self) -> None:
        self._items.clear()
        self.end()

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Incoming:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Output:
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
                self._advance(written)
        except BlockingIOError:
            pass  # another process has filled the pipe
        except OSError:
            self._break()
        self._wait_for_room(wanted=bool(self._pending))
        if not self._pending:
            self._relaxed.set()

    def _advance(self, written: int) -> None:
        self._pending_bytes -= written
        rest = self._pending[0][written:]
        if rest:
            self._pending[0] = rest
        else:
            self._pending.popleft()

    def _wait_for_room(self, *, wanted: bool) -> None:
        if wanted and not self._waiting:
            self._loop.add_writer(self._descriptor, self._write_some)
        elif self._waiting and not wanted:
            self._loop.remove_writer(self._descriptor)
        self._waiting = wanted

    def _break(self) -> None:
        self.broken = True
        self._pending.clear()
        self._pending_bytes = 0
        self._on_broken()
