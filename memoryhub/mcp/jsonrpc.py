"""JSON-RPC over two file descriptors, and the revisions of MCP. Standard library only."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select

TYPE_CHECKING = False  # type checkers treat it as typing.TYPE_CHECKING, without the import
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

MAX_LINE_BYTES = 8 * 1024 * 1024
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
# The field of each list
LIST_METHODS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
# Required in lists by the newest revision; the SDK removes it for others
FRESH = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

_EDGE_BYTES = 512
_ID = rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,128}")'
_HEAD_ID = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"\s*[,}]"
_TAIL_ID = rb",\s*" + _ID + rb'(?:\s*,\s*"jsonrpc"\s*:\s*"2\.0")?\s*\}\s*\Z'


class Wire:
    __slots__ = ("incoming", "outgoing")

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming = incoming
        self.outgoing = outgoing


def claim() -> Wire:
    """Reserve stdin and stdout for the protocol: other output goes to stderr, other input is empty."""
    wire = Wire(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3), fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire


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
        """Return the lines that ``chunk`` completes, without line ends and blank lines; b"" ends the stream."""
        lines: list[bytes | Overlong] = []
        if not chunk:
            self._finish(lines)
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._extend(chunk[start:end])
            self._finish(lines)
            start = end + 1
        self._extend(chunk[start:])
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


def whole_lines(pending: bytearray, chunk: bytes) -> list[bytes]:
    """Return the lines that ``chunk`` completes, of the hub or a relay; ``pending`` keeps the start of the next."""
    pending += chunk
    if b"\n" not in chunk:
        return []
    *lines, pending[:] = bytes(pending).split(b"\n")
    return lines


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # another process made the shared descriptor non-blocking
            select.select([], [descriptor], [])


class MalformedError(Exception):
    """A line that is not a valid message; ``answers`` are the lines to send back."""

    def __init__(self, *answers: bytes) -> None:
        super().__init__(b"".join(answers))
        self.answers = answers


def dump(message: Message) -> bytes:
    """Return ``message`` as one line of UTF-8; lone surrogates become question marks."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def error_line(request_id: object, code: int, message: str) -> bytes:
    return dump({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def parse(line: bytes | Overlong) -> Message:
    """Parse ``line``, and check jsonrpc, id, method and params.

    Raises:
        MalformedError: with the answers to send.
    """
    if isinstance(line, Overlong):
        limit = f"Invalid request: the line is longer than {MAX_LINE_BYTES} bytes; send less at once"
        raise MalformedError(error_line(_visible_id(line.head, line.tail), INVALID_REQUEST, limit))
    message = _load(line)
    if isinstance(message, list):
        problem = "Invalid request: batches are not supported; send each message on a line of its own"
        requests = [request for request in message if isinstance(request, dict) and "method" in request]
        ids = [request_id for request_id in map(_id_of, requests) if request_id is not None]
        raise MalformedError(*[error_line(request_id, INVALID_REQUEST, problem) for request_id in ids or [None]])
    if not isinstance(message, dict):
        raise MalformedError(error_line(None, INVALID_REQUEST, "Invalid request: a message is a JSON object"))
    problem = _problem(message)
    if not problem and b"\\ud" in line.lower() and _has_lone_surrogate(message):
        problem = "it contains half of a surrogate pair, which is no character"
    if problem:
        raise MalformedError(error_line(_id_of(message), INVALID_REQUEST, f"Invalid request: {problem}"))
    return message


def _load(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"), parse_constant=refuse_constant)
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not valid UTF-8"
    except RecursionError:
        problem = "it is nested too deeply"
    except ValueError as error:
        problem = str(error)
    raise MalformedError(error_line(_visible_id(line, line), PARSE_ERROR, f"Parse error: {problem}"))


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _visible_id(head: bytes, tail: bytes) -> str | int | None:
    # Most clients write the id first or last, so it can be read even if the line can't be parsed.
    match = re.match(_HEAD_ID, head) or re.search(_TAIL_ID, tail[-512:])
    if not match:
        return None
    try:
        return json.loads(match[1].decode("utf-8"))  # type: ignore[no-any-return]
    except ValueError:
        return None


def _is_id(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _id_of(message: Message) -> object:
    value = message.get("id")
    if not _is_id(value) or _has_lone_surrogate(value):
        return None
    return value


def _problem(message: Message) -> str:
    if message.get("jsonrpc") != "2.0":
        return "'jsonrpc' must be \"2.0\""
    if "id" in message and "error" not in message and not _is_id(message["id"]):
        return "'id' must be a string or an integer"
    if "method" in message and not isinstance(message["method"], str):
        return "'method' must be a string"
    if not isinstance(message.get("params"), dict | None):
        return "'params' must be an object"
    if not message.keys() & {"method", "result", "error"}:
        return "a message has a 'method', a 'result' or an 'error'"
    return ""


def _has_lone_surrogate(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
