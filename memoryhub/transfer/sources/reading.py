"""Read the files of other tools, within limits, without writing beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from memories.importing.files import read_text
from memoryhub.config.repository import is_folder
from memoryhub.core.errors import Invalid
from memoryhub.core.foreign_files import open_foreign, read_foreign
from memoryhub.core.text import flat
from memoryhub.transfer.records import LeftOut

# Bytes of a file that is read whole, and of one line of JSON
MAX_FILE = 64 * 2**20
MAX_LINE = 4 * 2**20
# Values of a file of JSON: an empty list takes 2 bytes there, and 70 in memory
MAX_VALUES = 3_000_000
# Bytes of a file that is read line by line
MAX_LINES = 512 * 2**20
# Files and folders that are looked at, and levels of folders
MAX_ENTRIES = 200_000
MAX_DEPTH = 64
# See https://sqlite.org/fileformat2.html
_SQLITE = b"SQLite format 3\0"


def json_values(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield each value of a file of JSON lines with the number of its line; None for what is cut off or no JSON.

    A line may have several values, as two writers leave it. A file that is one value over several lines is read too.

    Raises:
        Invalid: the file cannot be read.
    """
    with _open_lines(path, follows_links=True) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE), b""), 1):
            is_long = len(line) == MAX_LINE and not line.endswith(b"\n")
            if is_long:
                _skip_line(file)
            values = [None] if is_long else list(_values(line))
            if number == 1 and values == [None] and (whole := _whole(file)) is not None:
                values = [whole]
            yield from ((number, value) for value in values)


def _values(line: bytes) -> Iterator[Any]:
    decoder, rest = json.JSONDecoder(), line.decode("utf-8-sig", "replace").strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            yield None
            return
        yield value
        rest = rest[end:].lstrip()


# The value that a whole file has, which is read to its end; None if it is too large or has none
def _whole(file: BinaryIO) -> Any:
    if os.fstat(file.fileno()).st_size > MAX_FILE:
        return None
    at = file.tell()
    file.seek(0)
    raw = file.read(MAX_FILE)
    try:
        if _count_values(raw) <= MAX_VALUES:
            return json.loads(raw)
    except (ValueError, RecursionError):
        pass
    file.seek(at)
    return None


def _count_values(raw: bytes) -> int:
    return sum(map(raw.count, (b",", b"[", b"{")))


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the number and the object of each line; None for a line that is too long, cut off or no JSON object.

    Raises:
        Invalid: the file cannot be read.
    """
    with _open_lines(path, follows_links=False) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE), b""), 1):
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                _skip_line(file)
                yield number, None
            elif line.strip():
                yield number, _object(line)


def _skip_line(file: BinaryIO) -> None:
    while (part := file.readline(MAX_LINE)) and not part.endswith(b"\n"):
        pass


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_json(path: Path) -> Any:
    """Return the value of a file of JSON.

    Raises:
        Invalid: it cannot be read, is a link, larger than 64 MB or no JSON.
    """
    try:
        raw = read_foreign(path, limit=MAX_FILE, follows_links=False)
    except OSError as error:
        raise _unreadable(path, error) from error
    if _count_values(raw) > MAX_VALUES:
        raise Invalid(f"{flat(str(path))} has more than {MAX_VALUES:,} values; export less at once")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{flat(str(path))} is no JSON; is this the right file?") from error


def is_sqlite(path: Path) -> bool:
    """Return whether a file begins as a database of SQLite.

    Raises:
        Invalid: it cannot be read.
    """
    with _open_file(path) as file:
        return file.read(len(_SQLITE)) == _SQLITE


def read_settings(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; empty if there is none, or none that can be read."""
    try:
        value = json.loads(read_text(path))
    except (Invalid, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _open_file(path: Path, *, follows_links: bool = False) -> BinaryIO:
    try:
        return os.fdopen(open_foreign(path, follows_links=follows_links), "rb")
    except OSError as error:
        raise _unreadable(path, error) from error


@contextmanager
def _open_lines(path: Path, *, follows_links: bool) -> Iterator[BinaryIO]:
    with _open_file(path, follows_links=follows_links) as file:
        if os.fstat(file.fileno()).st_size > MAX_LINES:
            raise Invalid(f"{flat(str(path))} is larger than {MAX_LINES // 2**20} MB")
        yield file


def _unreadable(path: Path, error: OSError) -> Invalid:
    return Invalid(f"can't read {flat(str(path))}: {error.strerror}")


Wanted = Callable[[PurePosixPath], bool]


def files_below(folder: Path, *, wanted: Wanted, entered: Wanted) -> Iterator[Path | LeftOut]:
    """Yield the wanted files in a stable order, and what is left out; both conditions get the path below the folder.

    Raises:
        Invalid: it is no folder, or has too many files.
    """
    if not folder.is_dir():
        raise Invalid(f"{flat(str(folder))} is not a folder")
    stack, room = [PurePosixPath()], MAX_ENTRIES
    while stack:
        below = stack.pop()
        entries = _entries(folder / below, room)
        if isinstance(entries, LeftOut):
            yield entries
            continue
        room -= len(entries)
        if room < 0:
            raise Invalid(f"{flat(str(folder))} has more than {MAX_ENTRIES:,} files; name a smaller folder")
        folders = [below / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        stack += filter(entered, reversed(folders))
        yield from _files(folder, below, entries, wanted, entered)


def _files(
    folder: Path, below: PurePosixPath, entries: list[os.DirEntry[str]], wanted: Wanted, entered: Wanted
) -> Iterator[Path | LeftOut]:
    for entry in entries:
        path = below / entry.name
        if entry.is_file(follow_symlinks=False):
            if wanted(path):
                yield folder / path
        elif not entry.is_dir(follow_symlinks=False) and (wanted(path) or (entered(path) and is_folder(folder / path))):
            yield LeftOut(entry.path, "a link, which may lead out of the folder, or not a file")


def _entries(folder: Path, room: int) -> list[os.DirEntry[str]] | LeftOut:
    if len(folder.parts) > MAX_DEPTH:
        return LeftOut(str(folder), f"it is more than {MAX_DEPTH} levels deep")
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, room + 1), key=lambda entry: entry.name)
    except OSError as error:
        return LeftOut(str(folder), f"it can't be read: {error.strerror}")
