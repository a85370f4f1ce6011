"""The index files of stores: opened when asked for, made again when absent, damaged or behind."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import connect
from typing import Any
from urllib.parse import quote

from memories.embeddings import index_file
from memories.embeddings.engine import StoreIndex
from memories.embeddings.index_file import IndexFile
from memoryhub.core.errors import Unavailable

logger = logging.getLogger(__name__)

FOLDER = "index"
_MADE_AT_ONCE = 20_000
"""Rows up to which whoever asks waits for a new index: a tenth of a second."""
_KEPT_OPEN = 32
_PAUSES = 20
"""A large index is made again no sooner than so many times what the last one took."""

_ROWS = "FROM memories_vector WHERE model_id = ? AND length(numbers) = ?"
_REVISION = "SELECT revision FROM memories_embeddingmodel WHERE id = ?"


def path_of(index: StoreIndex) -> Path:
    """Return where a store's index of one model is."""
    return Path(index.path).parent / FOLDER / f"vectors-{index.key}.bin"


@dataclass(slots=True)
class _Open:
    file: IndexFile
    stamp: tuple[int, int]
    """By which the file is known: one that was replaced or removed has another."""


class Indexes:
    """The open ones. Files of a few thousand rows are made while one waits, others behind the answers of the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, _Open] = OrderedDict()
        self._being_made: set[Path] = set()
        self._not_before: dict[Path, float] = {}

    def open(self, index: StoreIndex) -> IndexFile:
        """Return a store's index; the last whole one where a newer one takes long to make.

        Raises:
            Unavailable: there is none yet.
        """
        path = path_of(index)
        found = self._current(path)
        if found and found.revision == index.revision:
            return found
        if _count(index) <= _MADE_AT_ONCE:
            with self._lock:
                self._make(index)
        else:
            self._make_behind(index)
        newer = self._current(path) or found
        if newer is None:
            raise Unavailable("the vector index is being made; ask again in a few seconds")
        return newer

    def _current(self, path: Path) -> IndexFile | None:
        """Return what is in the file, read anew only where another one is in its place."""
        stamp = _stamp(path)
        known = self._open.get(path)
        if stamp is None or (known and known.stamp == stamp):
            return known.file if known and stamp else None
        file = index_file.read(path)
        if file is None:
            logger.warning("the vector index %s is damaged; it is made again", path)
            path.unlink(missing_ok=True)
            return None
        self._open[path] = _Open(file, stamp)
        while len(self._open) > _KEPT_OPEN:
            self._open.popitem(last=False)
        return file

    def _make_behind(self, index: StoreIndex) -> None:
        path = path_of(index)
        with self._lock:
            if path in self._being_made or time.monotonic() < self._not_before.get(path, 0):
                return
            self._being_made.add(path)
        threading.Thread(target=self._make_and_note, args=[index, path], daemon=True).start()

    def _make_and_note(self, index: StoreIndex, path: Path) -> None:
        began = time.monotonic()
        try:
            self._make(index)
        except Exception:
            logger.exception("the vector index %s could not be made", path)
        finally:
            with self._lock:
                self._being_made.discard(path)
                self._not_before[path] = time.monotonic() + _PAUSES * (time.monotonic() - began)

    def _make(self, index: StoreIndex) -> None:
        """Make the file; where a text was erased meanwhile, it goes again, as it may hold what came from that text."""
        path, dimensions = path_of(index), index.model.dimensions
        with closing(_connect(index.path)) as store:
            store.execute("BEGIN")
            revision = _first(store, _REVISION, index.key)
            count = _first(store, f"SELECT count(*) {_ROWS}", index.key, dimensions)
            rows = _rows(store, index.key, dimensions)
            index_file.write(path, rows, count=count, dimensions=dimensions, revision=revision)
            store.execute("COMMIT")
            if _first(store, _REVISION, index.key) != revision:
                path.unlink(missing_ok=True)


def _rows(store: Any, key: int, dimensions: int) -> Iterator[index_file.Row]:
    sql = f"SELECT document_id, scale, numbers {_ROWS} ORDER BY document_id"
    yield from store.execute(sql, [key, dimensions])


def _count(index: StoreIndex) -> int:
    with closing(_connect(index.path)) as store:
        count: int = _first(store, f"SELECT count(*) {_ROWS}", index.key, index.model.dimensions)
    return count


def _first(store: Any, sql: str, *parameters: int) -> int:
    row = store.execute(sql, parameters).fetchone()
    return row[0] if row else 0


def _connect(path: str) -> Any:
    return connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=5)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
