from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from memories.embeddings.engine import Answer, ModelId, Nearest, Packed, StoreIndex
from memoryhub import env
from memoryhub.core.errors import Unavailable

# Protocol: one line of JSON each way over a loopback connection; a secret in a file of mode 0600 authenticates the
# caller (decision 18).

# In the home: port and secret of the hub
ADDRESS_FILE = "embedding.json"

NOT_RUNNING = "memory-hub serve, which holds the embedding model, is not running"

_TOO_LATE = "the embedding model does not answer in time"

# A search waits this long for vectors, loading the model included; then it uses words only
_QUESTION_SECONDS = 1.5
_WORK_SECONDS = 600.0
# After a timeout no question is sent for this long
_PAUSE_SECONDS = 10.0

_silent_until = 0.0


class RemoteEngine:
    def describe(self, name: str) -> ModelId:
        return ModelId(**_ask({"do": "describe", "name": name}, _WORK_SECONDS))

    def embed(self, model: ModelId, texts: Sequence[str]) -> list[Packed]:
        found = _ask({"do": "embed", "model": asdict(model), "texts": list(texts)}, _WORK_SECONDS)
        return [(scale, base64.b64decode(numbers)) for scale, numbers in found]

    # The hub computes the answer while the caller does other work
    @contextmanager
    def asking(self, index: StoreIndex, question: str, limit: int) -> Iterator[Answer]:
        if time.monotonic() < _silent_until:
            raise Unavailable(_TOO_LATE)
        request = {"do": "nearest", "index": asdict(index), "question": question, "limit": limit}
        with _sent(request, _QUESTION_SECONDS) as connection:
            yield partial(_nearest, connection)


def _nearest(connection: socket.socket) -> Nearest:
    global _silent_until  # noqa: PLW0603 - one hub, so one state per process
    try:
        return [(document_id, score) for document_id, score in _received(connection)]
    except TimeoutError as error:
        _silent_until = time.monotonic() + _PAUSE_SECONDS
        raise Unavailable(_TOO_LATE) from error


def _ask(request: dict[str, Any], seconds: float) -> Any:
    with _sent(request, seconds) as connection:
        return _received(connection)


@contextmanager
def _sent(request: dict[str, Any], seconds: float) -> Iterator[socket.socket]:
    port, secret = _address()
    with ExitStack() as stack:
        with _or_away():
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=seconds))
            connection.sendall(json.dumps({"secret": secret, **request}).encode() + b"\n")
        yield connection


def _received(connection: socket.socket) -> Any:
    with _or_away(), connection.makefile("rb") as answers:
        line = answers.readline()
    answer = json.loads(line or b'{"problem": "the embedding process ended before it answered"}')
    if "problem" in answer:
        raise Unavailable(answer["problem"])
    return answer["result"]


@contextmanager
def _or_away() -> Iterator[None]:
    try:
        yield
    except TimeoutError:  # the hub is there, but slow
        raise
    except OSError as error:
        raise Unavailable(NOT_RUNNING) from error


def _address() -> tuple[int, str]:
    try:
        address = json.loads((env.home() / ADDRESS_FILE).read_text("utf-8"))
        return address["port"], address["secret"]
    except (OSError, ValueError, KeyError) as error:
        raise Unavailable(NOT_RUNNING) from error
