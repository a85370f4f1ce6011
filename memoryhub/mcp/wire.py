"""The two file descriptors of the protocol, and lines from the byte stream. Standard library only."""

from __future__ import annotations

import fcntl
import os
import select

TYPE_CHECKING = False  # type checkers treat it as typing.TYPE_CHECKING, without the import
if TYPE_CHECKING:
    from memoryhub.mcp.envelope import Message

MAX_LINE_BYTES = 8 * 1024 * 1024
_EDGE_BYTES = 512


class Wire:
    __slots__ = ("incoming", "outgoing")

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming = incoming
        self.outgoing = outgoing


def claim() -> Wire:
    """Reserve stdin and stdout for the protocol: other output goes to stderr, other input is empty."""
    wire = Wire(_duplicate(0), _duplicate(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire


def _duplicate(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


class Overlong:
    """A line that was too long to keep; its head or tail may show the request's id."""

    __slots__ = ("head", "tail")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head = head
        self.tail = tail


class LineBuffer:
    """Splits chunks into lines; keeps at most ``limit`` bytes of an unfinished one."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._pending = bytearray()
        self._overlong_head: bytes | None = None

    def feed(self, chunk: bytes) -> list[bytes | Overlong]:
        """Return the lines that ``chunk`` completes, without line ends and blank lines."""
        lines: list[bytes | Overlong] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._extend(chunk[start:end])
            self._finish(lines)
            start = end + 1
        self._extend(chunk[start:])
        return lines

    def finish(self) -> list[bytes | Overlong]:
        """Return the rest at the end of the stream."""
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


class Handover:
    """The wire, and what the front has read from it and not answered."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.buffer = LineBuffer()
        self.backlog: list[Message] = []
        # The client has closed its side.
        self.ended = False


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # another process made the shared descriptor non-blocking
            select.select([], [descriptor], [])
