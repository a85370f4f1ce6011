"""Entry point of ``memory-hub mcp``: answers from a snapshot while the server is imported, or refuses."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading

import memoryhub
from memoryhub.config import enabled
from memoryhub.env import HomeError, check_home, names_a_database
from memoryhub.mcp import jsonrpc, options, snapshot
from memoryhub.mcp.jsonrpc import Handover, LineBuffer, MalformedError, Overlong, Wire, claim, write_all
from memoryhub.mcp.snapshot import FRESH, LIST_METHODS, MODERN_VERSIONS, REPLAY_ID, Opening, handshake_version

TYPE_CHECKING = False  # type checkers treat it as typing.TYPE_CHECKING, without the import
if TYPE_CHECKING:
    from memoryhub.mcp.jsonrpc import Message
    from memoryhub.mcp.stdio import Hub
_CHUNK_BYTES = 1 << 16
_SWITCH_INTERVAL_SECONDS = 0.0005
_SWITCHED_OFF = "switched_off"
_METHOD_NOT_FOUND = -32601
_SERVER = {"name": "memory-hub", "title": "Memory Hub", "version": memoryhub.__version__}


def main(argv: list[str]) -> int:
    return serve(options.parse(argv))


def serve(chosen: options.Options) -> int:
    if chosen.directory is not None:
        try:
            os.chdir(chosen.directory)
        except OSError as error:
            sys.stderr.write(f"memory-hub mcp: --directory {chosen.directory!r} can't be entered: {error.strerror}\n")
            return 2
    if refusal := _refusal():
        return _refuse(chosen, refusal)
    if chosen.http is not None:
        from memoryhub.mcp.http import serve_http

        return serve_http(chosen, chosen.http)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Nothing is open yet, and a thread that is importing can't be joined.
        signal.signal(number, lambda *_: os._exit(0))
    front = Front(chosen, claim())
    try:
        hub = front.run()
    except BrokenPipeError:
        os._exit(0)
    if hub is None:
        sys.stderr.flush()
        os._exit(front.exit_code)  # the other thread may be in the middle of an import
    return hub.run(front.handover)


class HubRefusal:
    """Why the hub offers nothing. Over HTTP the process exits with ``exit_code``; over stdio it keeps serving."""

    __slots__ = ("code", "exit_code", "sentence")

    def __init__(self, code: str, sentence: str, *, exit_code: int) -> None:
        self.code = code
        self.sentence = sentence
        self.exit_code = exit_code


def _refusal() -> HubRefusal | None:
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


def _refuse(chosen: options.Options, refusal: HubRefusal) -> int:
    """Serve without tools, with the reason in every answer: clients would show a process that exits as broken."""
    if chosen.http is not None or refusal.code != _SWITCHED_OFF:
        sys.stderr.write(f"{refusal.sentence}\n")
    if chosen.http is not None:
        return refusal.exit_code
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        wire, buffer = claim(), LineBuffer()
        while chunk := os.read(wire.incoming, _CHUNK_BYTES):
            for line in buffer.feed(chunk):
                try:
                    answer = _refusal_line(jsonrpc.parse(line), refusal)
                except MalformedError as malformed:
                    answer = b"".join(malformed.answers)
                write_all(wire.outgoing, answer)
    return 0


def _refusal_line(message: Message, refusal: HubRefusal) -> bytes:
    if "id" not in message or "method" not in message:
        return b""
    method, result = message["method"], {}
    about: Message = {"capabilities": {"tools": {}}, "serverInfo": _SERVER, "instructions": refusal.sentence}
    if method == "initialize":
        version = handshake_version((message.get("params") or {}).get("protocolVersion"))
        result = {"protocolVersion": version, **about}
    elif method == "server/discover":
        result = {"supportedVersions": list(MODERN_VERSIONS), **about, **FRESH}
    elif method == "tools/call":
        text = f"{refusal.code}: {refusal.sentence}"
        result = {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}
    elif method in LIST_METHODS:
        result = {LIST_METHODS[method]: [], **FRESH}
    elif method != "ping":
        return jsonrpc.error_line(message["id"], _METHOD_NOT_FOUND, refusal.sentence)
    return jsonrpc.dump({"jsonrpc": "2.0", "id": message["id"], "result": result})


class Front:
    def __init__(self, chosen: options.Options, wire: Wire) -> None:
        self.exit_code = 0
        self.handover = Handover(wire)
        self._options = chosen
        self._key = snapshot.current_key()
        self._hub: Hub | None = None
        self._failure = ""
        self._ready, self._signal_ready = os.pipe()
        self._opening = Opening(snapshot.load(chosen.profile, self._key))

    def run(self) -> Hub | None:
        """Answer until the server is ready, and return it; None if it failed or isn't needed."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
        if select.select([self.handover.wire.incoming], [], [], 0)[0]:
            self._read()  # before another thread competes for the GIL
        threading.Thread(target=self._build, name="memory-hub-build", daemon=True).start()
        try:
            self._read_until_ready()
        finally:
            sys.setswitchinterval(interval)
        if self._failure:
            self.exit_code = 1
            sys.stderr.write(self._failure)
            reason = "Memory Hub could not start: " + self._failure.strip().rpartition("\n")[2]
            for request_id in self._pending_requests():
                line = jsonrpc.error_line(request_id, jsonrpc.INTERNAL_ERROR, reason)
                write_all(self.handover.wire.outgoing, line)
        return self._hub

    def _build(self) -> None:
        try:
            from memoryhub.mcp.stdio import build

            self._hub = build(self._options, self._key)
        except BaseException:  # noqa: BLE001  (reported by the main thread)
            import traceback

            self._failure = traceback.format_exc()
        os.write(self._signal_ready, b"!")

    def _read_until_ready(self) -> None:
        handover = self.handover
        watched = [handover.wire.incoming, self._ready]
        while True:
            readable = select.select(watched, [], [])[0]
            if handover.wire.incoming in readable:
                self._read()
                if handover.ended:
                    watched = [self._ready]
                    if not self._pending_requests():
                        return
            if self._ready in readable:
                return

    def _pending_requests(self) -> list[object]:
        return [message["id"] for message in self.handover.backlog if message.get("id", REPLAY_ID) != REPLAY_ID]

    def _read(self) -> None:
        chunk = os.read(self.handover.wire.incoming, _CHUNK_BYTES)
        self.handover.ended = not chunk
        for line in self.handover.buffer.feed(chunk):
            self._take(line)

    def _take(self, line: bytes | Overlong) -> None:
        try:
            message = jsonrpc.parse(line)
        except MalformedError as malformed:
            write_all(self.handover.wire.outgoing, b"".join(malformed.answers))
            return
        step = self._opening.take(message)
        self.handover.backlog.extend(step.for_server)
        if step.result is not None:
            answer = f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{step.result}}}\n'
            write_all(self.handover.wire.outgoing, answer.encode())
