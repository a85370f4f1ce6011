from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from memories.embeddings.engine import Answer, ModelId, Nearest, Packed, StoreIndex, find_files
from memories.embeddings.indexes import Indexes, quantized
from memoryhub.core.errors import Unavailable

if TYPE_CHECKING:
    from memories.embeddings.onnx import OnnxEmbedder

_QUESTIONS_KEPT = 256
# The model in use and its replacement
_MODELS_KEPT = 2


class LocalEngine:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: OrderedDict[str, OnnxEmbedder] = OrderedDict()
        self._questions: OrderedDict[tuple[str, str, str], Any] = OrderedDict()
        self._indexes = Indexes()
        self._last_request = time.monotonic()

    @property
    def idle_seconds(self) -> float:
        return time.monotonic() - self._last_request

    def let_go(self) -> None:
        with self._lock:
            self._models.clear()
            self._questions.clear()
            self._indexes = Indexes()

    def describe(self, name: str) -> ModelId:
        model = self._loaded(name)
        return ModelId(model.name, model.version, model.dimensions)

    def embed(self, model: ModelId, texts: Sequence[str]) -> list[Packed]:
        return quantized(self._model(model).embed(texts)) if texts else []

    # Computed when it is called for: this process has no one to delegate to
    @contextmanager
    def asking(self, index: StoreIndex, question: str, limit: int) -> Iterator[Answer]:
        yield partial(self._nearest, index, question, limit)

    def _nearest(self, index: StoreIndex, question: str, limit: int) -> Nearest:
        self._last_request = time.monotonic()
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

    # Only this exact version: vectors of different versions cannot be compared
    def _model(self, model_id: ModelId) -> OnnxEmbedder:
        model = self._loaded(model_id.name)
        if (model.version, model.dimensions) != (model_id.version, model_id.dimensions):
            raise Unavailable(f"the model {model_id.name!r} has changed; its texts are being embedded again")
        return model

    def _loaded(self, name: str) -> OnnxEmbedder:
        with self._lock:
            self._last_request = time.monotonic()
            if name not in self._models:
                from memories.embeddings.onnx import OnnxEmbedder  # loads onnxruntime

                self._models[name] = OnnxEmbedder(find_files(name))
            self._models.move_to_end(name)
            while len(self._models) > _MODELS_KEPT:
                self._models.popitem(last=False)
            return self._models[name]
