"""Why the hub offers nothing, and the server without tools that says so. Standard library only."""

from __future__ import annotations

import contextlib
import os
import sys

import memoryhub
from memoryhub.config import enabled
from memoryhub.env import HomeError, check_home, names_a_database
from memoryhub.mcp import jsonrpc, options
from memoryhub.mcp.jsonrpc import FRESH, HANDSHAKE_VERSIONS, LIST_METHODS, MODERN_VERSIONS, MalformedError

TYPE_CHECKING = False  # type checkers treat it as typing.TYPE_CHECKING, without the import
if TYPE_CHECKING:
    from memoryhub.mcp.jsonrpc import Message

_CHUNK_BYTES = 1 << 16
_SWITCHED_OFF = "switched_off"
_SERVER = {"name": "memory-hub", "title": "Memory Hub", "version": memoryhub.__version__}


class HubRefusal:
    """Why the hub offers nothing. Over HTTP the process exits with ``exit_code``; over stdio it keeps serving."""

    __slots__ = ("code", "exit_code", "sentence")

    def __init__(self, code: str, sentence: str, *, exit_code: int) -> None:
        self.code = code
        self.sentence = sentence
        self.exit_code = exit_code


def find_refusal() -> HubRefusal | None:
    try:
        if reason := enabled.switched_off_by():
            sentence = f"Memory Hub is switched off here by {reason}; nothing is stored or found until you remove that."
            return HubRefusal(_SWITCHED_OFF, sentence, exit_code=1)
        check_home()
        if names_a_database():
            from memoryhub.core.home_database import require_own

            require_own(by_client=True)
    except HomeError as error:
        from memoryhub.core.errors import Unavailable

        return HubRefusal(Unavailable.code, f"Memory Hub is unavailable: {error}.", exit_code=Unavailable.exit_code)
    return None


def refuse(chosen: options.Options, refusal: HubRefusal) -> int:
    """Serve without tools, with the reason in every answer: clients would show a process that exits as broken."""
    if chosen.http is not None or refusal.code != _SWITCHED_OFF:
        sys.stderr.write(f"{refusal.sentence}\n")
    if chosen.http is not None:
        return refusal.exit_code
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        wire, lines = jsonrpc.claim(), jsonrpc.LineBuffer()
        while chunk := os.read(wire.incoming, _CHUNK_BYTES):
            for line in lines.feed(chunk):
                try:
                    answer = _refusal_line(jsonrpc.parse(line), refusal)
                except MalformedError as malformed:
                    answer = b"".join(malformed.answers)
                jsonrpc.write_all(wire.outgoing, answer)
    return 0


def _refusal_line(message: Message, refusal: HubRefusal) -> bytes:
    if "id" not in message or "method" not in message:
        return b""
    method, result = message["method"], {}
    about: Message = {"capabilities": {"tools": {}}, "serverInfo": _SERVER, "instructions": refusal.sentence}
    if method == "initialize":
        offered = (message.get("params") or {}).get("protocolVersion")
        version = offered if offered in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        result = {"protocolVersion": version, **about}
    elif method == "server/discover":
        result = {"supportedVersions": list(MODERN_VERSIONS), **about, **FRESH}
    elif method == "tools/call":
        text = f"{refusal.code}: {refusal.sentence}"
        result = {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}
    elif method in LIST_METHODS:
        result = {LIST_METHODS[method]: [], **FRESH}
    elif method != "ping":
        return jsonrpc.error_line(message["id"], jsonrpc.METHOD_NOT_FOUND, refusal.sentence)
    return jsonrpc.dump({"jsonrpc": "2.0", "id": message["id"], "result": result})
