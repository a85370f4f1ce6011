"""The engine of the process that holds the model, and the vectors of each store as a memory-mapped file.

Such a file is a cache, rebuilt when it is missing, damaged or outdated (decision 19).
"""

from __future__ import annotations

import logging
import os
import struct
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memories.embeddings.engine import (
    INDEX_BEGIN,
    INDEX_HEAD,
    INDEX_MAGIC,
    INDEX_SUM,
    Answer,
    ModelId,
    Nearest,
    Packed,
    StoreIndex,
    find_files,
)
from memoryhub.core.backends.snapshots import snapshots
from memoryhub.core.disk import sync
from memoryhub.core.errors import Unavailable

if TYPE_CHECKING:
    from memories.embeddings.onnx import OnnxEmbedder

logger = logging.getLogger(__name__)

_QUESTIONS_KEPT = 256
# The model in use and its replacement
_MODELS_KEPT = 2


class LocalEngine:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: OrderedDict[str, OnnxEmbedder] = OrderedDict()
        self._questions: OrderedDict[tuple[str, str, str], Any] = OrderedDict()
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
            if name not in self._models:
                from memories.embeddings.onnx import OnnxEmbedder  # loads onnxruntime

                self._models[name] = OnnxEmbedder(find_files(name))
            self._models.move_to_end(name)
            while len(self._models) > _MODELS_KEPT:
                self._models.popitem(last=False)
            return self._models[name]


FOLDER = "index"
# Up to this many rows a question waits for the rebuild, a tenth of a second; larger files are rebuilt in the background
_REBUILT_AT_ONCE = 20_000
_KEPT_OPEN = 32
# A large index is rebuilt no sooner than this many times the duration of its last rebuild
_PAUSES = 20

_ROWS = "FROM memories_vector WHERE model_id = %s AND length(numbers) = %s"
_COUNT = f"SELECT count(*) {_ROWS}"
_ALL = f"SELECT document_id, scale, numbers {_ROWS} ORDER BY document_id"
_REVISION = "SELECT revision FROM memories_embeddingmodel WHERE id = %s"


def path_of(index: StoreIndex) -> Path:
    return snapshots.folder(index.path) / FOLDER / f"vectors-{index.key}.bin"


@dataclass(slots=True)
class _Open:
    file: IndexFile
    # Inode and modification time: a replaced file has another stamp
    stamp: tuple[int, int]


class Indexes:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, _Open] = OrderedDict()
        self._being_built: set[Path] = set()
        self._not_before: dict[Path, float] = {}

    def open(self, index: StoreIndex) -> IndexFile:
        """Return the index of a store; an outdated one while a large file is rebuilt.

        Raises:
            Unavailable: there is none yet.
        """
        path = path_of(index)
        current = self._current_file(path)
        if current and current.revision == index.revision:
            return current
        with snapshots.reading(index.path) as store:
            count: int = store.value(_COUNT, index.key, index.model.dimensions)
        if count <= _REBUILT_AT_ONCE:
            with self._lock:
                self._build(index)
        else:
            self._build_in_background(index)
        newer = self._current_file(path) or current
        if newer is None:
            raise Unavailable("the vector index is being built; try again in a few seconds")
        return newer

    def _current_file(self, path: Path) -> IndexFile | None:
        stamp = _stamp(path)
        if stamp is None:
            return None
        opened = self._open.get(path)
        if opened and opened.stamp == stamp:
            return opened.file
        file = read_index(path)
        if file is None:
            logger.warning("the vector index %s is damaged; it is rebuilt", path)
            path.unlink(missing_ok=True)
            return None
        self._open[path] = _Open(file, stamp)
        while len(self._open) > _KEPT_OPEN:
            self._open.popitem(last=False)
        return file

    def _build_in_background(self, index: StoreIndex) -> None:
        path = path_of(index)
        with self._lock:
            if path in self._being_built or time.monotonic() < self._not_before.get(path, 0):
                return
            self._being_built.add(path)
        threading.Thread(target=self._build_and_record, args=[index, path], daemon=True).start()

    def _build_and_record(self, index: StoreIndex, path: Path) -> None:
        began = time.monotonic()
        try:
            self._build(index)
        except Exception:
            logger.exception("the vector index %s could not be built", path)
        finally:
            with self._lock:
                self._being_built.discard(path)
                self._not_before[path] = time.monotonic() + _PAUSES * (time.monotonic() - began)

    # One read transaction gives a consistent snapshot. If the revision has changed since, a text may have been erased,
    # and the file may still contain its vector: it is removed.
    def _build(self, index: StoreIndex) -> None:
        path, dimensions = path_of(index), index.model.dimensions
        with snapshots.reading(index.path) as store:
            with store.at_one_moment():
                revision = store.value(_REVISION, index.key)
                count = store.value(_COUNT, index.key, dimensions)
                rows = store.rows(_ALL, index.key, dimensions)
                write_index(path, rows, count=count, dimensions=dimensions, revision=revision)
            if store.value(_REVISION, index.key) != revision:
                path.unlink(missing_ok=True)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


# File format: header and checksum (``index_check``), then the arrays ids, signs, scales and numbers. It is written to a
# temporary file, synced and renamed, so a crash leaves the previous file (decision 19).
Matrix = NDArray[np.float32]

_AT_ONCE = 4096
_SUMMED_AT_ONCE = 1 << 26

# Up to this many rows all are compared; above, the signs of the numbers preselect (decision 19)
_EXACT_UP_TO = 20_000
_CHOSEN = 2_000
_CHOSEN_SHARE = 100

# Document id, scale, numbers
Row = tuple[int, float, bytes]


@dataclass(frozen=True, slots=True)
class IndexFile:
    revision: int
    ids: Any
    scales: Any
    signs: Any
    numbers: Any

    def nearest(self, question: Matrix, limit: int) -> list[tuple[int, float]]:
        """Return the ``limit`` rows nearest to a unit vector, best first, with their cosine similarity."""
        if len(self.ids) <= _EXACT_UP_TO:
            return _best(self.ids, self.scales, self.numbers, question, limit)
        rows = self._chosen(question, limit)
        return _best(self.ids[rows], self.scales[rows], self.numbers[rows], question, limit)

    # The rows whose signs differ least from the question's (Hamming distance)
    def _chosen(self, question: Matrix, limit: int) -> Any:
        total = len(self.ids)
        signs = _signs(question[None, :])[0]
        distances = np.zeros(total, np.uint16)
        for word in range(self.signs.shape[0]):
            distances += np.bitwise_count(self.signs[word] ^ signs[word])
        count = min(total, max(_CHOSEN, limit, total // _CHOSEN_SHARE))
        # Within this distance at least ``count`` rows are; a histogram is enough, as there are few distances
        limit_of_distance = int(np.searchsorted(np.cumsum(np.bincount(distances)), count))
        return np.flatnonzero(distances <= limit_of_distance)


def _best(ids: Any, scales: Any, numbers: Any, question: Matrix, limit: int) -> list[tuple[int, float]]:
    scores = np.empty(len(ids), np.float32)
    for start in range(0, len(ids), _AT_ONCE):
        scores[start : start + _AT_ONCE] = numbers[start : start + _AT_ONCE].astype(np.float32) @ question
    scores *= scales
    if limit >= len(scores):
        best = np.argsort(-scores, kind="stable")
    else:
        largest = np.argpartition(-scores, limit)[:limit]
        best = largest[np.argsort(-scores[largest], kind="stable")]
    return list(zip(ids[best].tolist(), scores[best].tolist(), strict=True))


def quantized(vectors: Matrix) -> list[tuple[float, bytes]]:
    """Return each row as a scale factor and one signed byte per dimension."""
    scales = np.maximum(np.abs(vectors).max(axis=1), 1e-12) / 127
    numbers = np.round(vectors / scales[:, None]).astype(np.int8)
    return [(float(scale), row.tobytes()) for scale, row in zip(scales, numbers, strict=True)]


# Sign bits of each row as 64-bit words, padded with zeros
def _signs(vectors: Any) -> Any:
    bits = np.packbits(vectors > 0, axis=1)
    padding = -bits.shape[1] % 8
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, padding)))).view(np.uint64)


# Atomic, and filled in the mapped file instead of in memory
def write_index(path: Path, rows: Iterable[Row], *, count: int, dimensions: int, revision: int) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        os.truncate(draft, INDEX_BEGIN + _size(count, dimensions))
        whole = np.memmap(draft, np.uint8, "r+")
        body = whole[INDEX_BEGIN:]
        _fill(_mapped(body, revision, count, dimensions), rows)
        head = INDEX_HEAD.pack(INDEX_MAGIC, revision, count, dimensions)
        whole[:INDEX_BEGIN] = np.frombuffer(head + INDEX_SUM.pack(_checksum(head, body)), np.uint8)
        whole.flush()
        sync(draft)
        draft.rename(path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _fill(index: IndexFile, rows: Iterable[Row]) -> None:
    remaining, start, dimensions = iter(rows), 0, index.numbers.shape[1]
    while chunk := list(islice(remaining, _AT_ONCE)):
        end = start + len(chunk)
        index.ids[start:end], index.scales[start:end], vectors = zip(*chunk, strict=True)
        numbers = np.frombuffer(b"".join(vectors), np.int8).reshape(len(chunk), dimensions)
        index.numbers[start:end] = numbers
        index.signs[:, start:end] = _signs(numbers).T
        start = end


def _checksum(head: bytes, body: Any) -> int:
    total = zlib.crc32(head)
    for start in range(0, len(body), _SUMMED_AT_ONCE):
        total = zlib.crc32(body[start : start + _SUMMED_AT_ONCE], total)
    return total


def read_index(path: Path) -> IndexFile | None:
    try:
        whole = np.memmap(path, np.uint8, "r")
        head, body = whole[: INDEX_HEAD.size].tobytes(), whole[INDEX_BEGIN:]
        magic, revision, count, dimensions = INDEX_HEAD.unpack(head)
        if (
            magic != INDEX_MAGIC
            or INDEX_SUM.pack(_checksum(head, body)) != whole[INDEX_HEAD.size : INDEX_BEGIN].tobytes()
        ):
            return None
        return _mapped(body, revision, count, dimensions)
    except (OSError, ValueError, struct.error):
        return None


# Bytes of ids, signs, scales and numbers: in this order every array is aligned
def _sizes(count: int, dimensions: int) -> list[int]:
    return [8 * count, 8 * -(-dimensions // 64) * count, 4 * count, dimensions * count]


def _size(count: int, dimensions: int) -> int:
    return sum(_sizes(count, dimensions))


def _mapped(body: Any, revision: int, count: int, dimensions: int) -> IndexFile:
    if len(body) != _size(count, dimensions):
        raise ValueError("the length of the index does not match its header")
    sizes = _sizes(count, dimensions)
    ends = list(accumulate(sizes))
    ids, signs, scales, numbers = (body[end - size : end] for end, size in zip(ends, sizes, strict=True))
    return IndexFile(
        revision,
        ids.view(np.int64),
        scales.view(np.float32),
        signs.view(np.uint64).reshape(-(-dimensions // 64), count),
        numbers.view(np.int8).reshape(count, dimensions),
    )
