"""The process that holds the embedding model."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Any

from memories.embeddings.engine import ADDRESS_FILE, Engine, ModelId, StoreIndex
from memoryhub import env, logs
from memoryhub.core.backends.snapshots import snapshots
from memoryhub.core.backends.sqlite import options
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.secret_files import secret_matches
from memoryhub.ops.serving.process import bound_allocator

if TYPE_CHECKING:
    from memories.embeddings.local import LocalEngine

logger = logging.getLogger(__name__)

# The model is unloaded after so many seconds without a request
_IDLE_SECONDS = 900.0
_LOOK_SECONDS = 60.0
_LONGEST_LINE = 32 * 1024 * 1024

# A model allocates and frees some 50 MB for each batch: in an arena for each thread, and kept by the
# allocator, that became several times as much. Setting the one threshold also keeps the one for mmap from growing.
_ARENAS = 1
_KEPT_FREE_BYTES = 32 * 1024 * 1024


class _EmbeddingServer(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, engine: Callable[[], Engine], secret: str) -> None:
        self.engine, self.secret = engine, secret
        super().__init__(("127.0.0.1", 0), _Handler)


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
            return {"result": _ANSWERS[request.pop("do")](self.server.engine(), request)}
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


# One process: a loaded model takes 280 MB (decision 18). It ends with its standard input, which the server holds
# open.
def main() -> None:
    bound_allocator(arenas=_ARENAS, kept_free_bytes=_KEPT_FREE_BYTES)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a second thread would only spin
    options.install()
    logs.configure({})
    env.prepare_home()
    engine = _Holder()
    with _EmbeddingServer(engine, secrets.token_urlsafe(32)) as server:
        path = env.home() / ADDRESS_FILE
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"port": server.server_address[1], "secret": server.secret, "pid": os.getpid()}, file)
        draft.rename(path)
        threading.Thread(target=server.serve_forever, name="embedding", daemon=True).start()
        threading.Thread(target=engine.keep, name="embedding-idle", daemon=True).start()
        sys.stdin.buffer.read()
        path.unlink(missing_ok=True)


# Imports numpy and the engine on the first request
class _Holder:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: LocalEngine | None = None

    def __call__(self) -> Engine:
        with self._lock:
            if self._engine is None:
                from memories.embeddings.local import LocalEngine

                self._engine = LocalEngine()
            return self._engine

    def keep(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            if self._engine is not None and self._engine.idle_seconds > _IDLE_SECONDS:
                self._engine.let_go()


if __name__ == "__main__":
    main()
