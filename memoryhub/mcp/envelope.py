"""JSON-RPC messages as lines, and answers to malformed ones. Standard library only."""

from __future__ import annotations

import json
import re

from memoryhub.mcp.wire import MAX_LINE_BYTES, Overlong

TYPE_CHECKING = False  # type checkers treat it as typing.TYPE_CHECKING, without the import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Message = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603

_ID = rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,128}")'
_HEAD_ID = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"\s*[,}]"
_TAIL_ID = rb",\s*" + _ID + rb'(?:\s*,\s*"jsonrpc"\s*:\s*"2\.0")?\s*\}\s*\Z'


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
        raise MalformedError(*_batch_answers(message))
    if not isinstance(message, dict):
        raise MalformedError(error_line(None, INVALID_REQUEST, "Invalid request: a message is a JSON object"))
    problem = next((sentence for sentence, is_so in _PROBLEMS.items() if is_so(message)), None)
    if problem is None and b"\\ud" in line.lower() and _has_lone_surrogate(message):
        problem = "it contains half of a surrogate pair, which is no character"
    if problem:
        raise MalformedError(error_line(_id_of(message), INVALID_REQUEST, f"Invalid request: {problem}"))
    return message


def _load(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not valid UTF-8"
    except RecursionError:
        problem = "it is nested too deeply"
    except ValueError as error:
        problem = str(error)
    raise MalformedError(error_line(_visible_id(line, line), PARSE_ERROR, f"Parse error: {problem}"))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _visible_id(head: bytes, tail: bytes) -> str | int | None:
    # Most clients write the id first or last, so it can be read even if the line can't be parsed.
    found = re.match(_HEAD_ID, head) or re.search(_TAIL_ID, tail[-512:])
    if not found:
        return None
    try:
        return json.loads(found[1].decode("utf-8"))  # type: ignore[no-any-return]
    except ValueError:
        return None


def _is_id(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _id_of(message: object) -> object:
    value = message.get("id") if isinstance(message, dict) else None
    return value if _is_id(value) and not _has_lone_surrogate(value) else None


_PROBLEMS: dict[str, Callable[[Message], bool]] = {
    "'jsonrpc' must be \"2.0\"": lambda message: message.get("jsonrpc") != "2.0",
    "'id' must be a string or an integer": lambda message: (
        "id" in message and not _is_id(message["id"]) and "error" not in message
    ),
    "'method' must be a string": lambda message: "method" in message and not isinstance(message["method"], str),
    "'params' must be an object": lambda message: not isinstance(message.get("params"), dict | None),
    "a message has a 'method', a 'result' or an 'error'": lambda message: (
        not message.keys() & {"method", "result", "error"}
    ),
}


def _batch_answers(batch: list[Any]) -> list[bytes]:
    problem = "Invalid request: batches are not supported; send each message on a line of its own"
    ids = [_id_of(message) for message in batch if isinstance(message, dict) and "method" in message]
    return [error_line(request_id, INVALID_REQUEST, problem) for request_id in ids if request_id is not None] or [
        error_line(None, INVALID_REQUEST, problem)
    ]


def _has_lone_surrogate(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
