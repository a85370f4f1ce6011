"""The two file descriptors of the protocol, taken away from everything else, and lines cut from the byte stream."""

from __future__ import annotations

import fcntl
import os
import select

MAX_LINE_BYTES = 8 * 1024 * 1024
_EDGE_BYTES = 512


class Wire:
    __slots__ = ("incoming", "outgoing")

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming = incoming
        self.outgoing = outgoing


def claim() -> Wire:
    """Take stdin and stdout for the protocol: what others print goes to stderr, and they read nothing."""
    wire = Wire(_duplicate(0), _duplicate(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire


def _duplicate(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


class Overlong:
    """A line that was thrown away for its length; its edges may still show the request's id."""

    __slots__ = ("head", "tail")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head = head
        self.tail = tail


class LineBuffer:
    """Cuts lines out of chunks; holds at most ``limit`` bytes of an unfinished one."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._pending = bytearray()
        self._overlong_head: bytes | None = None

    def feed(self, chunk: bytes) -> list[bytes | Overlong]:
        """Return the lines that ``chunk`` completes, without their line ends; blank ones are left out."""
        lines: list[bytes | Overlong] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._extend(chunk[start:end])
            self._finish(lines)
            start = end + 1
        self._extend(chunk[start:])
        return lines

    def finish(self) -> list[bytes | Overlong]:
        """Return what was left without a line end when the stream ended."""
        lines: list[bytes | Overlong] = []
        self._finish(lines)
        return lines

    def _extend(self, part: bytes) -> None:
        self._pending += part
        if len(self._pending) <= self._limit:
            return
        if self._overlong_head is None:
            self._overlong_head = bytes(self._pending[:_EDGE_BYTES])
        del self._pending[:-_EDGE_BYTES]

    def _finish(self, lines: list[bytes | Overlong]) -> None:
        line = bytes(self._pending)
        self._pending.clear()
        if self._overlong_head is not None:
            lines.append(Overlong(self._overlong_head, line))
            self._overlong_head = None
        elif line.strip():
            lines.append(line)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, waiting as long as the reader takes."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # whoever shares the descriptor made it so
            select.select([], [descriptor], [])
