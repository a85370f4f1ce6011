from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from memories.embeddings import index_file
from memories.embeddings.engine import StoreIndex
from memories.embeddings.index_file import IndexFile
from memoryhub.core.backends.snapshots import snapshots
from memoryhub.core.errors import Unavailable

logger = logging.getLogger(__name__)

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
        found = self._current(path)
        if found and found.revision == index.revision:
            return found
        if _count(index) <= _REBUILT_AT_ONCE:
            with self._lock:
                self._build(index)
        else:
            self._build_in_background(index)
        newer = self._current(path) or found
        if newer is None:
            raise Unavailable("the vector index is being built; try again in a few seconds")
        return newer

    def _current(self, path: Path) -> IndexFile | None:
        stamp = _stamp(path)
        opened = self._open.get(path)
        if stamp is None or (opened and opened.stamp == stamp):
            return opened.file if opened and stamp else None
        file = index_file.read(path)
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
                index_file.write(path, rows, count=count, dimensions=dimensions, revision=revision)
            if store.value(_REVISION, index.key) != revision:
                path.unlink(missing_ok=True)


def _count(index: StoreIndex) -> int:
    with snapshots.reading(index.path) as store:
        count: int = store.value(_COUNT, index.key, index.model.dimensions)
    return count


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
