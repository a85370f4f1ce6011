"""Asking the hub that runs: a line of JSON each way over a connection that only this user's processes can make."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from memories.embeddings.engine import ModelId, Nearest, Packed, StoreIndex
from memoryhub import env
from memoryhub.core.errors import Unavailable

ADDRESS_FILE = "embedding.json"
"""In the home folder: where the hub listens, and the secret that it asks for."""

NOT_RUNNING = "memory-hub serve, which holds the embedding model, is not running"

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

    def nearest(self, index: StoreIndex, question: str, limit: int) -> Nearest:
        """Return the documents of a store whose texts mean most nearly what the question does."""
        global _silent_until  # noqa: PLW0603 - one hub, so one state for all who ask it
        if time.monotonic() < _silent_until:
            raise Unavailable("the embedding model does not answer in time")
        try:
            found = _ask(
                {"do": "nearest", "index": asdict(index), "question": question, "limit": limit}, _QUESTION_SECONDS
            )
        except TimeoutError as error:
            _silent_until = time.monotonic() + _PAUSE_SECONDS
            raise Unavailable("the embedding model does not answer in time") from error
        return [(document_id, score) for document_id, score in found]


def _ask(request: dict[str, Any], seconds: float) -> Any:
    port, secret = _address()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
            connection.sendall(json.dumps({"secret": secret, **request}).encode() + b"\n")
            line = connection.makefile("rb").readline()
    except TimeoutError:
        raise
    except OSError as error:
        raise Unavailable(NOT_RUNNING) from error
    answer = json.loads(line or b'{"problem": "the embedding model ended while it was asked"}')
    if "problem" in answer:
        raise Unavailable(answer["problem"])
    return answer["result"]


def _address() -> tuple[int, str]:
    try:
        found = json.loads((env.home() / ADDRESS_FILE).read_text())
        return found["port"], found["secret"]
    except (OSError, ValueError, KeyError) as error:
        raise Unavailable(NOT_RUNNING) from error
