"""``memory-hub mcp``: pass messages between a client and the hub of its home. Standard library only.

A window then costs one small process, whatever the hub has loaded. The hub is started if there is none. Where none may
be started, this process serves itself behind the same relay.

If the hub ends, the relay starts it again, repeats the handshake, and sends again what was not answered. Each tool call
has a number that stays the same, by which the hub recognises a write that it has done already.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM
from _socket import socket as new_socket
from collections import deque

import memoryhub
from memoryhub.core import autostart
from memoryhub.core.file_locks import is_locked
from memoryhub.core.windows import window
from memoryhub.env import SERVE_LOCK, home_text, working_folder_text
from memoryhub.mcp import jsonrpc, options
from memoryhub.mcp.jsonrpc import MalformedError, Wire
from memoryhub.mcp.refusal import find_refusal, refuse

TYPE_CHECKING = False  # type checkers treat it as typing.TYPE_CHECKING, without the import
if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryhub.mcp.jsonrpc import Message, Overlong

# Below the home folder, which is its owner's alone
SOCKET = "run/windows.sock"
# What both sides must agree on; not the version, so that a window outlives an upgrade of the hub
PROTOCOL = 1
# The line of a client that a signal ends: what has begun is finished, and nothing else
STOP = b"stop"
# Begins a line with the session that the client is in, for the next hub
STATE = b"state "
_CHUNK_BYTES = 1 << 16
# Unread by the other side; until it reads on, nothing more is read for it
_FULL_BYTES = 1 << 20
# From the last sign of a hub that starts or ends
_START_SECONDS = 10.0
_LOOK_SECONDS = 0.01
# To ask whether a hub may start reads files, which windows that wait would take from the hub that starts
_ASK_SECONDS = 0.25
_GREETING_SECONDS = 30.0
# A request that ended so many hubs is answered with an error
_MOST_ATTEMPTS = 5
# Under which a client's handshake is repeated; its second answer is dropped
_REPEATED = "memory-hub:repeated-handshake"
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


def main(argv: list[str]) -> int:
    return serve(options.parse(argv))


def serve(chosen: options.Options) -> int:
    if chosen.directory is not None:
        try:
            os.chdir(chosen.directory)
        except OSError as error:
            sys.stderr.write(f"memory-hub mcp: --directory {chosen.directory!r} can't be entered: {error.strerror}\n")
            return 2
    if refusal := find_refusal():
        return refuse(chosen, refusal)
    if chosen.http is not None:
        from memoryhub.mcp.http import serve_http

        return serve_http(chosen, chosen.http)
    relay = Relay(chosen, jsonrpc.claim())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: relay.stop())
    return relay.run()


class _Request:
    __slots__ = ("attempts", "line")

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.attempts = 0


class Relay:
    """One client's connection to a hub, and to the next one when that ends."""

    def __init__(self, chosen: options.Options, wire: Wire, *, directory: str = "") -> None:
        self._wire = wire
        self._greeting = _greeting_of(chosen, directory or working_folder_text())
        self._from_client = jsonrpc.LineBuffer()
        self._to_client = _Outlet(wire.outgoing)
        self._hub: _HubConnection | None = None
        self._hubs = 0
        # Ends the process if it is the server itself
        self._finish: Callable[[], None] | None = None
        # Not answered yet, in the client's order
        self._requests: dict[object, _Request] = {}
        self._handshake: Message | None = None
        self._is_initialized = False
        self._calls = 0
        # The client has closed its side, or a signal came
        self._is_ended = False
        self._is_stopped = False
        self._failure = ""
        self._waker, self._wake = os.pipe()

    def stop(self) -> None:
        """End as after a signal: from a handler, or from another thread."""
        if self._hub is None:
            os._exit(0)  # nothing has begun, and a start that goes on can't be joined
        os.write(self._wake, b"!")

    def run(self) -> int:
        """Relay until the client has closed its side and has its answers; return the exit code."""
        while not (self._to_client.is_broken or self._is_over()):
            self._relay()
        if self._hub:
            self._hub.close()
        if self._finish:
            self._finish()
        sys.stderr.write(self._failure)
        return 1 if self._failure else 0

    def _is_over(self) -> bool:
        is_answered = not (self._hub or self._requests or self._to_client.pending)
        return is_answered and (self._is_ended or bool(self._failure))

    def _relay(self) -> None:
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        hub = self._hub
        if not (self._is_ended or (hub and hub.outlet.pending_bytes > _FULL_BYTES)):
            poll.register(self._wire.incoming, select.POLLIN)
        if self._to_client.pending:
            poll.register(self._wire.outgoing, select.POLLOUT)
        if hub:
            is_full = self._to_client.pending_bytes > _FULL_BYTES
            events = (0 if is_full else select.POLLIN) | (select.POLLOUT if hub.outlet.pending else 0)
            poll.register(hub.number, events)
        ready = dict(poll.poll())
        if self._waker in ready:
            os.read(self._waker, _CHUNK_BYTES)
            self._is_stopped = True
            self._end(STOP + b"\n")
        if self._wire.outgoing in ready:
            self._to_client.flush()
        if hub and ready.get(hub.number, 0) & select.POLLOUT:
            hub.outlet.flush()
        if hub and ready.get(hub.number, 0) & ~select.POLLOUT:
            self._read_hub(hub)
        if self._wire.incoming in ready:
            self._read_client()

    def _read_client(self) -> None:
        try:
            chunk = os.read(self._wire.incoming, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        for line in self._from_client.feed(chunk):
            self._accept(line)
        if not chunk:
            self._end()

    def _end(self, last: bytes = b"") -> None:
        self._is_ended = True
        if self._hub:
            self._hub.outlet.put(last)
            self._hub.outlet.close_when_written()

    def _accept(self, line: bytes | Overlong) -> None:
        try:
            message = jsonrpc.parse(line)
        except MalformedError as malformed:
            self._to_client.put(b"".join(malformed.answers))
            return
        data = line + b"\n"  # type: ignore[operator]  # what is too long is malformed
        method = message.get("method")
        if method is None:
            self._answer_hub(message, data)
        elif "id" in message:
            if method == "tools/call":
                self._calls += 1
                data = b"%d %s" % (self._calls, data)
            elif method == "initialize":
                self._handshake = message
            self._requests[message["id"]] = request = _Request(data)
            if self._hub is None:
                self._connect()
            else:
                request.attempts += 1
                self._hub.outlet.put(data)
        else:
            if method == "notifications/initialized":
                self._is_initialized = True
            elif method == "notifications/cancelled":
                self._requests.pop((message.get("params") or {}).get("requestId"), None)  # it gets no answer
            if self._hub:
                self._hub.outlet.put(data)

    # A question of a hub that has ended is asked again by the next one, so an answer to it is nobody's.
    def _answer_hub(self, message: Message, data: bytes) -> None:
        if self._hub is None:
            return
        if self._hubs > 1:
            hub, _, number = str(message.get("id")).partition(":")
            if hub != str(self._hubs) or not number.isdecimal():
                return
            data = jsonrpc.dump({**message, "id": int(number)})
        self._hub.outlet.put(data)

    def _read_hub(self, hub: _HubConnection) -> None:
        try:
            chunk = hub.connection.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._lose(hub)
            return
        for line in jsonrpc.whole_lines(hub.pending, chunk):
            self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        if line.startswith(STATE):
            self._greeting["state"] = json.loads(line.removeprefix(STATE))
            return
        message = json.loads(line)
        request_id = message.get("id")
        if "method" not in message:
            if request_id == _REPEATED:
                return
            self._requests.pop(request_id, None)
        elif self._hubs > 1:
            if "id" in message:
                line = jsonrpc.dump({**message, "id": self._name(request_id)})[:-1]
            elif message["method"] == "notifications/cancelled":
                params = message["params"]
                renamed = {**params, "requestId": self._name(params.get("requestId"))}
                line = jsonrpc.dump({**message, "params": renamed})[:-1]
        self._to_client.put(line + b"\n")

    # Each hub counts its questions from the start.
    def _name(self, number: object) -> str:
        return f"{self._hubs}:{number}"

    def _lose(self, hub: _HubConnection) -> None:
        hub.close()
        self._hub = None
        if self._is_stopped or self._finish:  # where this process is the server, it is done
            self._requests.clear()
        elif self._requests:
            self._connect()

    def _connect(self) -> None:
        self._hub = _reach(self._greeting) or self._serve_here()
        if self._hub is None:
            reason = "Memory Hub could not start: " + self._failure.strip().rpartition("\n")[2]
            self._drop(self._requests, reason)
            return
        self._hubs += 1
        worn = {name: request for name, request in self._requests.items() if request.attempts >= _MOST_ATTEMPTS}
        self._drop(worn, f"the hub ended {_MOST_ATTEMPTS} times before it had answered this; see its log")
        outlet = self._hub.outlet
        requests = dict(self._requests)
        if self._handshake:
            first = requests.pop(self._handshake["id"], None)
            outlet.put(first.line if first else jsonrpc.dump({**self._handshake, "id": _REPEATED}))
            if self._is_initialized:
                outlet.put(_INITIALIZED)
        for request in requests.values():
            outlet.put(request.line)
        for request in self._requests.values():
            request.attempts += 1
        if self._is_ended:
            outlet.close_when_written()

    def _drop(self, requests: dict[object, _Request], reason: str) -> None:
        for name in list(requests):
            self._requests.pop(name)
            self._to_client.put(jsonrpc.error_line(name, jsonrpc.INTERNAL_ERROR, reason))

    def _serve_here(self) -> _HubConnection | None:
        try:
            from memoryhub.mcp.local import serve_here, set_up

            set_up(http=False)
            connection, self._finish = serve_here()
            return _greet(connection, self._greeting)
        except Exception:  # noqa: BLE001  (reported to the client)
            import traceback

            self._failure = traceback.format_exc()
            return None


def _greeting_of(chosen: options.Options, directory: str) -> Message:
    connection = os.urandom(6).hex()
    return {
        "protocol": PROTOCOL,
        "version": memoryhub.__version__,
        "pid": os.getpid(),
        # Names the calls of this process for ever
        "connection": connection,
        "state": {
            "session": chosen.session,
            "is_chosen": bool(chosen.session),
            "new_session": connection,
            "window": window(),
        },
        "directory": directory,
        "project": chosen.project,
        "profile": chosen.profile,
        # A hub with other settings can't serve this process
        "variables": {name: os.environ[name] for name in os.environ if name.startswith("MEMORY_HUB_") or name == "TZ"},
    }


def _reach(greeting: Message) -> _HubConnection | None:
    """Return the hub of this home, which is started if there is none; None if it can't serve this client."""
    path, lock = f"{home_text()}/{SOCKET}", f"{home_text()}/{SERVE_LOCK}"
    ask_at = time.monotonic()
    deadline = ask_at + _START_SECONDS
    while time.monotonic() < deadline:
        connection = new_socket(AF_UNIX, SOCK_STREAM)
        try:
            connection.connect(path)
            return _greet(connection, greeting)
        except (ConnectionError, FileNotFoundError) as error:
            connection.close()
            if is_locked(lock):
                # A hub listens before it publishes its address in the lock's file
                if isinstance(error, FileNotFoundError) and os.path.getsize(lock):  # noqa: PTH202
                    return None  # of an earlier version, or it can't listen
                deadline = time.monotonic() + _START_SECONDS
            elif time.monotonic() >= ask_at:
                if not autostart.is_allowed():
                    return None
                autostart.start_hub()
                if autostart.is_starting():
                    deadline = time.monotonic() + _START_SECONDS
                ask_at = time.monotonic() + _ASK_SECONDS
        except OSError:  # the path is too long
            connection.close()
            return None
        time.sleep(_LOOK_SECONDS)
    return None


def _greet(connection: new_socket, greeting: Message) -> _HubConnection | None:
    """Send the greeting, and return the hub if it takes this client.

    Raises:
        ConnectionError: it has ended.
    """
    connection.settimeout(_GREETING_SECONDS)
    connection.sendall(jsonrpc.dump(greeting))
    answer = b""
    while not answer.endswith(b"\n"):
        part = connection.recv(_CHUNK_BYTES)
        if not part:
            raise ConnectionResetError("the hub has ended")
        answer += part
    reply = json.loads(answer)
    if reply["notice"]:
        sys.stderr.write(f"{reply['notice']}\n")
    if reply["refused"]:
        connection.close()
        return None
    connection.setblocking(False)
    return _HubConnection(connection)


class _HubConnection:
    __slots__ = ("connection", "number", "outlet", "pending")

    def __init__(self, connection: new_socket) -> None:
        self.connection = connection
        self.number = connection.fileno()
        # The start of a line
        self.pending = bytearray()
        self.outlet = _Outlet(self.number, at_once=_CHUNK_BYTES, on_written=lambda: connection.shutdown(SHUT_WR))

    def close(self) -> None:
        self.connection.close()


class _Outlet:
    """Writes bytes in order to a descriptor, as far as they fit; ``flush`` writes more.

    A client's descriptor may be shared with other processes, so it is not made non-blocking. Instead, at most
    ``PIPE_BUF`` bytes are written at once, when ``poll`` reports that they fit.
    """

    def __init__(
        self, number: int, *, at_once: int = select.PIPE_BUF, on_written: Callable[[], None] | None = None
    ) -> None:
        self.is_broken = False
        self.pending: deque[memoryview] = deque()
        self.pending_bytes = 0
        self._number = number
        self._at_once = at_once
        self._on_written = on_written
        self._is_closing = False
        self._poll = select.poll()
        self._poll.register(number, select.POLLOUT)

    def put(self, data: bytes) -> None:
        if data and not self.is_broken:
            self.pending.append(memoryview(data))
            self.pending_bytes += len(data)
            self.flush()

    def close_when_written(self) -> None:
        self._is_closing = True
        self.flush()

    def flush(self) -> None:
        try:
            while self.pending and self._poll.poll(0):
                written = os.write(self._number, self.pending[0][: self._at_once])
                self.pending_bytes -= written
                if unwritten := self.pending[0][written:]:
                    self.pending[0] = unwritten
                else:
                    self.pending.popleft()
        except BlockingIOError:
            pass  # another process has filled the pipe
        except OSError:
            self.is_broken = True
            self.pending.clear()
            self.pending_bytes = 0
        if self._is_closing and not self.pending and self._on_written:
            with contextlib.suppress(OSError):  # the other side has ended
                self._on_written()
