"""The models in this process, and the open index files of stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from memories.embeddings.choice import find_files
from memories.embeddings.engine import Answer, ModelId, Nearest, Packed, StoreIndex
from memories.embeddings.index_file import quantized
from memories.embeddings.indexes import Indexes
from memoryhub.core.errors import Unavailable


class Embedder(Protocol):
    """A model that is loaded."""

    @property
    def name(self) -> str:
        """What a setting names it by."""

    @property
    def version(self) -> str:
        """What differs where the same text may get another vector."""

    @property
    def dimensions(self) -> int:
        """Numbers of a vector."""

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return a row a text, each of length 1, as float32."""


_QUESTIONS_KEPT = 256
_MODELS_KEPT = 2
"""The one in use, and the one that takes its place."""


class LocalEngine:
    """Loads a model when it is first asked for; may be asked by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: OrderedDict[str, Embedder] = OrderedDict()
        self._questions: OrderedDict[tuple[str, str, str], Any] = OrderedDict()
        self._indexes = Indexes()
        self._asked_at = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        """How long nobody has asked for anything."""
        return time.monotonic() - self._asked_at

    def let_go(self) -> None:
        """Give up the models and the open files; they are loaded again when they are asked for."""
        with self._lock:
            self._models.clear()
            self._questions.clear()
            self._indexes = Indexes()

    def describe(self, name: str) -> ModelId:
        """Return a model by its name; it is loaded for that."""
        model = self._loaded(name)
        return ModelId(model.name, model.version, model.dimensions)

    def embed(self, model: ModelId, texts: Sequence[str]) -> list[Packed]:
        """Return a vector a text."""
        return quantized(self._model(model).embed(texts)) if texts else []

    @contextmanager
    def asking(self, index: StoreIndex, question: str, limit: int) -> Iterator[Answer]:
        """Let the answer be called for; it is found only then, since this process has nobody else to find it."""
        yield partial(self._nearest, index, question, limit)

    def _nearest(self, index: StoreIndex, question: str, limit: int) -> Nearest:
        self._asked_at = time.monotonic()
        return self._indexes.open(index).nearest(self._vector(index.model, question), limit)

    def _vector(self, model: ModelId, question: str) -> Any:
        key = (model.name, model.version, question)
        vector = self._questions.get(key)
        if vector is None:
            vector = np.ascontiguousarray(self._model(model).embed([question])[0])
        with self._lock:
            self._questions[key] = vector
            while len(self._questions) > _QUESTIONS_KEPT:
                self._questions.popitem(last=False)
        return vector

    def _model(self, wanted: ModelId) -> Embedder:
        """Return the model in exactly this version: another's vectors can't be compared with its."""
        model = self._loaded(wanted.name)
        if (model.version, model.dimensions) != (wanted.version, wanted.dimensions):
            raise Unavailable(f"the model {wanted.name!r} has changed; its texts are being embedded again")
        return model

    def _loaded(self, name: str) -> Embedder:
        with self._lock:
            self._asked_at = time.monotonic()
            if name not in self._models:
                self._models[name] = _load(name)
            self._models.move_to_end(name)
            while len(self._models) > _MODELS_KEPT:
                self._models.popitem(last=False)
            return self._models[name]


def _load(name: str) -> Embedder:
    from memories.embeddings.onnx import OnnxEmbedder

    return OnnxEmbedder(find_files(name))
