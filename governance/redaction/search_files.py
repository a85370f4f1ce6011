"""Search files and their names for texts, byte by byte; compressed backups by their content too.

A standalone script that imports nothing of the hub. Reads ``{"folder": …, "texts": […]}`` from standard input and
prints ``{"files": …, "bytes": …, "left": […]}``.
"""

# A process of its own, because closing a file releases every lock that SQLite holds on it in the same process, and two
# writers at once would corrupt the store.

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Bytes; shorter texts occur in every file by chance
_SHORTEST = 5
# Bytes; a database splits longer texts over pages, so only slices of them are searched
_LONGEST = 200
_SLICES, _SLICE, _ENOUGH = 5, 64, 3
_CHUNK = 4 * 1024 * 1024
_AT_ONCE = 1_000
_PATTERN_MEMORY = 256 * 1024 * 1024
# What compressed files begin with: the lines before their compressed part, and how zlib reads that
_COMPRESSED = {b"\x1f\x8b": (0, 31), b"memory-hub-bundle 1\n": (2, 15)}

# Yields the parts that some bytes contain
Search = Callable[[bytes], Iterator[bytes]]


# A text in one encoding: a file contains it if it contains enough of its parts
@dataclass(frozen=True, slots=True)
class Needle:
    parts: frozenset[bytes]
    enough: int = 1


# Each text as it is and as JSON escapes it
def needles_of(texts: Collection[str]) -> list[Needle]:
    forms: set[bytes] = set()
    for text in texts:
        for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
            forms.add(form.encode("utf-8", "replace"))
    return [_needle(form) for form in sorted(forms) if len(form) >= _SHORTEST]


def _needle(form: bytes) -> Needle:
    if len(form) <= _LONGEST:
        return Needle(frozenset({form}))
    step = (len(form) - _SLICE) // (_SLICES - 1)
    slices = frozenset(form[at * step : at * step + _SLICE] for at in range(_SLICES))
    return Needle(slices, min(_ENOUGH, len(slices)))


def search(folder: Path, texts: Collection[str]) -> dict[str, object]:
    needles = needles_of(texts)
    parts = sorted({part for needle in needles for part in needle.parts})
    find = _searcher(parts)
    overlap = max(map(len, parts), default=1) - 1
    files, size, containing = 0, 0, []
    for path in _files(folder):
        try:
            count, holds = _read(path, find, needles, overlap)
        except FileNotFoundError:
            continue  # a journal that was just deleted
        files, size = files + 1, size + count
        if holds:
            containing.append(str(path))
    return {"files": files, "bytes": size, "left": containing}


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        paths = (Path(parent, name) for name in sorted(names))
        yield from (path for path in paths if path.is_file() and not path.is_symlink())


# Not mapped: truncating a mapped file would kill the process
def _read(path: Path, find: Search, needles: Sequence[Needle], overlap: int) -> tuple[int, bool]:
    matches = set(find(os.fsencode(path.name)))
    size = 0
    for content in (_chunks(path), _decompressed(path)):
        tail = b""
        for chunk in content:
            matches.update(find(tail + chunk))
            tail = (tail + chunk)[-overlap:] if overlap else b""
            size += len(chunk)
    return size, any(len(needle.parts & matches) >= needle.enough for needle in needles)


def _chunks(path: Path, *, skip_lines: int = 0) -> Iterator[bytes]:
    with path.open("rb") as file:
        for _ in range(skip_lines):
            file.readline(_CHUNK)
        while chunk := file.read(_CHUNK):
            yield chunk


def _decompressed(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        start = file.read(max(map(len, _COMPRESSED)))
    forms = (form for beginning, form in _COMPRESSED.items() if start.startswith(beginning))
    skip_lines, container = next(forms, (0, 0))
    if not container:
        return
    decoder = zlib.decompressobj(container)
    for chunk in _chunks(path, skip_lines=skip_lines):
        compressed = chunk
        while compressed:
            try:
                yield decoder.decompress(compressed, _CHUNK)
            except zlib.error:
                return  # encrypted, or no such file after all
            compressed = decoder.unconsumed_tail


# RE2 searches a thousand parts as fast as one
def _searcher(parts: Sequence[bytes]) -> Search:
    patterns = [_pattern(parts[start : start + _AT_ONCE]) for start in range(0, len(parts), _AT_ONCE)]
    return lambda content: (match.group() for pattern in patterns for match in pattern.finditer(content))


def _pattern(parts: Sequence[bytes]) -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _PATTERN_MEMORY
    return re2.compile(b"|".join(re2.escape(part) for part in parts), options)


if __name__ == "__main__":
    request = json.load(sys.stdin)
    json.dump(search(Path(request["folder"]), request["texts"]), sys.stdout)
