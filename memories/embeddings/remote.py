"""Asking the hub that runs: a line of JSON each way over a connection that only this user's processes can make."""

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

ADDRESS_FILE = "embedding.json"
"""In the home folder: where the hub listens, and the secret that it asks for."""

NOT_RUNNING = "memory-hub serve, which holds the embedding model, is not running"

_TOO_LATE = "the embedding model does not answer in time"

_QUESTION_SECONDS = 1.5
"""So long a search waits for the vectors, a model that is being loaded included; then the words alone answer."""
_WORK_SECONDS = 600.0
_PAUSE_SECONDS = 10.0
"""So long nobody asks again after an answer took too long."""

_silent_until = 0.0


class RemoteEngine:
    """The engine of the hub that runs."""

    def describe(self, name: str) -> ModelId:
        """Return a model by its name."""
        return ModelId(**_ask({"do": "describe", "name": name}, _WORK_SECONDS))

    def embed(self, model: ModelId, texts: Sequence[str]) -> list[Packed]:
        """Return a vector a text."""
        found = _ask({"do": "embed", "model": asdict(model), "texts": list(texts)}, _WORK_SECONDS)
        return [(scale, base64.b64decode(numbers)) for scale, numbers in found]

    @contextmanager
    def asking(self, index: StoreIndex, question: str, limit: int) -> Iterator[Answer]:
        """Send the question; the hub looks for the answer while its caller does something else."""
        if time.monotonic() < _silent_until:
            raise Unavailable(_TOO_LATE)
        request = {"do": "nearest", "index": asdict(index), "question": question, "limit": limit}
        with _sent(request, _QUESTION_SECONDS) as connection:
            yield partial(_nearest, connection)


def _nearest(connection: socket.socket) -> Nearest:
    global _silent_until  # noqa: PLW0603 - one hub, so one state for all who ask it
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
    """Yield the connection over which a request was sent; whoever reads from it waits so many seconds at most."""
    port, secret = _address()
    with ExitStack() as stack:
        with _or_away():
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=seconds))
            connection.sendall(json.dumps({"secret": secret, **request}).encode() + b"\n")
        yield connection


def _received(connection: socket.socket) -> Any:
    with _or_away(), connection.makefile("rb") as answers:
        line = answers.readline()
    answer = json.loads(line or b'{"problem": "the embedding model ended while it was asked"}')
    if "problem" in answer:
        raise Unavailable(answer["problem"])
    return answer["result"]


@contextmanager
def _or_away() -> Iterator[None]:
    """Say that nobody is there where the connection is refused or lost; a time that is over is another matter."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        raise Unavailable(NOT_RUNNING) from error


def _address() -> tuple[int, str]:
    try:
        found = json.loads((env.home() / ADDRESS_FILE).read_text())
        return found["port"], found["secret"]
    except (OSError, ValueError, KeyError) as error:
        raise Unavailable(NOT_RUNNING) from error
