"""What a thread has answered and a client has not read yet: little of it in memory, the rest in a file."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

_CHUNK_BYTES = 64 * 1024
# Of one answer; with the limit of requests at once, this bounds the memory of all.
_MEMORY_BYTES = 2 * _CHUNK_BYTES
# Of all answers, on the disk
_MOST_BYTES = 1024 * 1024 * 1024


class SpoolFull(Exception):
    """Too much waits for clients that do not read it."""


class Closed(Exception):
    """Nobody waits for the answer any more."""


class Spool:
    """The folder for answers that wait, and how much all of them may take there. ``None`` is the system's folder."""

    def __init__(self, folder: Path | None = None, *, most_bytes: int = _MOST_BYTES) -> None:
        self.folder = folder or Path(tempfile.gettempdir())
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self.bytes = 0

    def take(self, size: int) -> None:
        with self._lock:
            if self.bytes + size > self._most_bytes:
                raise SpoolFull
            self.bytes += size

    def give_back(self, size: int) -> None:
        with self._lock:
            self.bytes -= size


# A thread writes, and is never made to wait; the event loop reads as fast as the client does.
class Outbox:
    def __init__(self, loop: asyncio.AbstractEventLoop, spool: Spool) -> None:
        self._loop, self._spool = loop, spool
        self._lock = threading.Lock()
        self._news = asyncio.Event()
        self._memory: deque[bytes] = deque()
        self._in_memory = 0
        self._file: int | None = None
        self._written = self._read = 0
        self._ended = self._closed = False

    def put(self, content: bytes) -> None:
        """Add a part of the answer, all or nothing of it. Raises SpoolFull or Closed."""
        with self._lock:
            # What is in the file comes after what is in memory.
            room = 0 if self._written else _MEMORY_BYTES - self._in_memory
        size = max(0, len(content) - room)
        self._spool.take(size)
        try:
            for start in range(0, len(content), _CHUNK_BYTES):
                size -= self._put(content[start : start + _CHUNK_BYTES], room=room - start)
        finally:
            self._spool.give_back(size)
        self._notify()

    # Returns how many bytes went to the file
    def _put(self, chunk: bytes, *, room: int) -> int:
        with self._lock:
            if self._closed:
                raise Closed
            kept = chunk[: max(0, room)]
            if kept:
                self._memory.append(kept)
                self._in_memory += len(kept)
            self._write(chunk[len(kept) :])
        return len(chunk) - len(kept)

    def _write(self, chunk: bytes) -> None:
        if chunk and self._file is None:
            # Without a name, so that nothing is left of it, whatever happens
            with tempfile.TemporaryFile(dir=self._spool.folder) as file:
                self._file = os.dup(file.fileno())
        rest = memoryview(chunk)
        while rest and self._file is not None:
            rest = rest[os.pwrite(self._file, rest, self._written + len(chunk) - len(rest)) :]
        self._written += len(chunk)

    def end(self) -> None:
        with self._lock:
            self._ended = True
        self._notify()

    def _notify(self) -> None:
        self._loop.call_soon_threadsafe(self._news.set)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the answer until its end."""
        while True:
            self._news.clear()
            with self._lock:
                chunk, is_over = self._next(), self._ended
            if chunk:
                yield chunk
            elif is_over:
                return
            else:
                await self._news.wait()

    def _next(self) -> bytes:
        if self._memory:
            chunk = self._memory.popleft()
            self._in_memory -= len(chunk)
            return chunk
        if self._file is None or self._read == self._written:
            return b""
        chunk = os.pread(self._file, min(_CHUNK_BYTES, self._written - self._read), self._read)
        self._read += len(chunk)
        if self._read == self._written:
            self._empty()
        return chunk

    # A client that keeps up needs no more of the disk, however long its answer is.
    def _empty(self) -> None:
        self._spool.give_back(self._written)
        self._written = self._read = 0
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._memory.clear()
            self._empty()
            if self._file is not None:
                os.close(self._file)
                self._file = None
