"""The process that holds the embedding model, from a request on until none has come for some minutes."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from select import select
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

from memories.embeddings.engine import ADDRESS_FILE, Engine, ModelId, StoreIndex
from memoryhub import env, logs
from memoryhub.core.backends.snapshots import snapshots
from memoryhub.core.backends.sqlite import options
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.secret_files import secret_matches
from memoryhub.ops.serving.process import Child, bound_allocator

logger = logging.getLogger(__name__)

# The process ends after so many seconds without a request
_IDLE_SECONDS = 300.0
_STOP_LOOK_SECONDS = 2.0
_GRACE_SECONDS = 1.5
_LONGEST_LINE = 32 * 1024 * 1024
_BACKLOG = 64

# A model allocates and frees some 50 MB for each batch: in an arena for each thread, and kept by the
# allocator, that became several times as much. Setting the one threshold also keeps the one for mmap from growing.
_ARENAS = 1
_KEPT_FREE_BYTES = 32 * 1024 * 1024


@contextmanager
def run_model(*, idle_seconds: float = _IDLE_SECONDS) -> Iterator[Child]:
    """Listen for requests to the embedding model; the first one starts the process that answers them.

    That process accepts from the same socket, so a request that comes as it ends waits for the next one.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
        path = env.home() / ADDRESS_FILE
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"port": listener.getsockname()[1], "secret": secrets.token_urlsafe(32)}, file)
        draft.rename(path)

        def wait_for_request(stop: threading.Event) -> bool:
            while not stop.is_set():
                if select([listener], [], [], _STOP_LOOK_SECONDS)[0]:
                    return True
            return False

        number = listener.fileno()
        child = Child(__name__, str(number), str(idle_seconds), wait_for_work=wait_for_request, pass_fds=[number])
        try:
            yield child
        finally:
            path.unlink(missing_ok=True)
            child.stop(grace=_GRACE_SECONDS)


class _EmbeddingServer(ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, engine: Engine, secret: str) -> None:
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.engine = engine
        self.secret = secret
        self._lock = threading.Lock()
        self._requests = 0
        self._used_at = time.monotonic()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._count(1)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._requests += change
            self._used_at = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._requests else time.monotonic() - self._used_at


class _Handler(StreamRequestHandler):
    disable_nagle_algorithm = True
    server: _EmbeddingServer

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client has gone
            if line := self.rfile.readline(_LONGEST_LINE):
                self.wfile.write(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not secret_matches(str(request.pop("secret", "")), self.server.secret):
                return {"problem": "wrong secret"}
            return {"result": _ANSWERS[request.pop("do")](self.server.engine, request)}
        except HubError as error:
            return {"problem": error.message}
        except Exception as error:
            logger.exception("a request to the embedding model failed")
            return {"problem": f"the embedding model failed: {type(error).__name__}"}


def _describe(engine: Engine, request: dict[str, Any]) -> Any:
    return asdict(engine.describe(request["name"]))


def _embed(engine: Engine, request: dict[str, Any]) -> Any:
    packed = engine.embed(ModelId(**request["model"]), request["texts"])
    return [(scale, base64.b64encode(numbers).decode()) for scale, numbers in packed]


def _find_nearest(engine: Engine, request: dict[str, Any]) -> Any:
    place = request["index"]
    index = StoreIndex(**{**place, "model": ModelId(**place["model"])})
    if not snapshots.holds(index.path):
        raise Invalid("the store is not in this hub")
    with engine.asking(index, request["question"], request["limit"]) as answer:
        return answer()


_ANSWERS: dict[str, Callable[[Engine, dict[str, Any]], Any]] = {
    "describe": _describe,
    "embed": _embed,
    "nearest": _find_nearest,
}


# One process: a loaded model takes 280 MB (decision 18). It ends with its standard input, which the hub holds open.
def main() -> None:
    bound_allocator(arenas=_ARENAS, kept_free_bytes=_KEPT_FREE_BYTES)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a second thread would only spin
    from memories.embeddings.local import LocalEngine  # imports numpy

    options.install()
    logs.configure({})
    env.prepare_home()
    secret = json.loads((env.home() / ADDRESS_FILE).read_text("utf-8"))["secret"]
    listener = socket.socket(fileno=int(sys.argv[1]))
    with _EmbeddingServer(listener, LocalEngine(), secret) as server:
        _serve_until_idle(server, float(sys.argv[2]))


def _serve_until_idle(server: _EmbeddingServer, idle_seconds: float) -> None:
    has_ended = False
    while not has_ended and server.idle_seconds < idle_seconds:
        threading.Thread(target=server.serve_forever, name="embedding", daemon=True).start()
        while not has_ended and (remaining := idle_seconds - server.idle_seconds) > 0:
            has_ended = bool(select([sys.stdin], [], [], remaining)[0])
        server.shutdown()  # a request may have been accepted meanwhile: then it goes on


if __name__ == "__main__":
    main()
