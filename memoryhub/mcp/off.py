"""An MCP server without tools, for a hub that is switched off or has no usable home; every answer names the reason.

Clients would show a process that exits at once as broken. Standard library only.
"""

from __future__ import annotations

import os

import memoryhub
from memoryhub.mcp import envelope
from memoryhub.mcp.envelope import MalformedError
from memoryhub.mcp.opening import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from memoryhub.mcp.wire import LineBuffer, Wire, write_all

TYPE_CHECKING = False  # type checkers treat it as typing.TYPE_CHECKING, without the import
if TYPE_CHECKING:
    from memoryhub.mcp.envelope import Message

SWITCHED_OFF = "switched_off"
_CHUNK_BYTES = 1 << 16
_METHOD_NOT_FOUND = -32601
_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
_SERVER = {"name": "memory-hub", "title": "Memory Hub", "version": memoryhub.__version__}
_FRESH = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class Refusal:
    """Why the hub offers nothing. Over HTTP the process exits with ``exit_code``; over stdio it keeps serving."""

    __slots__ = ("code", "exit_code", "sentence")

    def __init__(self, code: str, sentence: str, *, exit_code: int) -> None:
        self.code = code
        self.sentence = sentence
        self.exit_code = exit_code


def switched_off(reason: str) -> Refusal:
    sentence = f"Memory Hub is switched off here by {reason}; nothing is stored or found until you remove that."
    return Refusal(SWITCHED_OFF, sentence, exit_code=1)


def unavailable(problem: str) -> Refusal:
    from memoryhub.core.errors import Unavailable

    return Refusal(Unavailable.code, f"Memory Hub is unavailable: {problem}.", exit_code=Unavailable.exit_code)


def serve_off(refusal: Refusal, wire: Wire) -> None:
    buffer = LineBuffer()
    while chunk := os.read(wire.incoming, _CHUNK_BYTES):
        for line in buffer.feed(chunk):
            try:
                answer = _answered(envelope.parse(line), refusal)
            except MalformedError as malformed:
                answer = b"".join(malformed.answers)
            write_all(wire.outgoing, answer)


def _answered(message: Message, refusal: Refusal) -> bytes:
    if "id" not in message or "method" not in message:
        return b""
    result = _result(message["method"], message.get("params") or {}, refusal)
    if result is None:
        return envelope.error_line(message["id"], _METHOD_NOT_FOUND, refusal.sentence)
    return envelope.dump({"jsonrpc": "2.0", "id": message["id"], "result": result})


def _result(method: str, params: Message, refusal: Refusal) -> Message | None:
    about: Message = {"capabilities": {"tools": {}}, "serverInfo": _SERVER, "instructions": refusal.sentence}
    if method == "initialize":
        wanted = params.get("protocolVersion")
        return {"protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1], **about}
    if method == "server/discover":
        return {"supportedVersions": list(MODERN_VERSIONS), **about, **_FRESH}
    if method == "tools/call":
        text = f"{refusal.code}: {refusal.sentence}"
        return {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}
    if method in _LISTS:
        return {_LISTS[method]: [], **_FRESH}
    return {} if method == "ping" else None
