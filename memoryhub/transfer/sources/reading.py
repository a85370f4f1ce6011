"""Read the files of other tools, within limits, without writing beside them."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from memories.importing.files import read_text
from memoryhub.config.repository import is_folder
from memoryhub.core.errors import Invalid
from memoryhub.core.foreign_files import open_foreign, read_foreign
from memoryhub.core.text import flat
from memoryhub.transfer.records import LeftOutRecord
from sessions_app import git

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
# Entries of a folder that a message names
_MOST_NAMED = 5
_DECODER = json.JSONDecoder()
# See https://sqlite.org/fileformat2.html
SQLITE = b"SQLite format 3\0"
_UNICODE_MARKS = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"


def json_values(path: Path, *, follows_links: bool = True) -> Iterator[tuple[int, Any]]:
    """Yield each value of a file of JSON lines with the number of its line; None for what is cut off or no JSON.

    A line may have several values, as two writers leave it. A file that is one value over several lines is read too.

    Raises:
        Invalid: the file cannot be read.
    """
    with _open_file(path, follows_links=follows_links) as file:
        if os.fstat(file.fileno()).st_size > MAX_LINES:
            raise Invalid(f"{flat(str(path))} is larger than {MAX_LINES // 2**20} MB")
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE), b""), 1):
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                _skip_line(file)
                values: list[Any] = [None]
            else:
                values = list(_decoded_values(line))
            if number == 1 and values == [None] and (whole := _whole_file(file)) is not None:
                values = [whole]
            for value in values:
                yield number, value


def _decoded_values(line: bytes) -> Iterator[Any]:
    text = line.decode("utf-8-sig", "replace").strip()
    at = 0
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield None
            return
        yield value
        while at < len(text) and text[at].isspace():
            at += 1


# The value that a whole file has, which is read to its end; None if it is too large or has none
def _whole_file(file: BinaryIO) -> Any:
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
    for number, value in json_values(path, follows_links=False):
        yield number, value if isinstance(value, dict) else None


def _skip_line(file: BinaryIO) -> None:
    while (part := file.readline(MAX_LINE)) and not part.endswith(b"\n"):
        pass


def read_json(path: Path) -> Any:
    """Return the value of a file of JSON.

    Raises:
        Invalid: it cannot be read, is a link, larger than 64 MB or no JSON.
    """
    return parse_json(read_packed(path), path)


def read_packed(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in ``.gz``.

    Raises:
        Invalid: it cannot be read, is a link or larger than 64 MB.
    """
    try:
        raw = read_foreign(path, limit=MAX_FILE, follows_links=False)
    except OSError as error:
        raise _unreadable(path, error) from error
    return unpacked(raw, path) if path.suffix == ".gz" else raw


def parse_json(raw: bytes, path: Path) -> Any:
    """Return the value of JSON that was read from a file.

    Raises:
        Invalid: it is no JSON, or has too many values.
    """
    if _count_values(raw) > MAX_VALUES:
        raise Invalid(f"{flat(str(path))} has more than {MAX_VALUES:,} values; export less at once")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{flat(str(path))} is no JSON; is this the right file?") from error


def unpacked(raw: bytes, path: Path) -> bytes:
    """Return what was packed with gzip, at most 64 MB.

    Raises:
        Invalid: it is damaged or larger.
    """
    try:
        with gzip.open(io.BytesIO(raw)) as file:
            content = file.read(MAX_FILE + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Invalid(f"{flat(str(path))} is damaged, or not compressed with gzip") from error
    if len(content) > MAX_FILE:
        raise Invalid(f"{flat(str(path))} unpacks to more than {MAX_FILE // 2**20} MB")
    return content


class ToolExport:
    """The lists of rows in a JSON export, read as the tables of a database."""

    def __init__(self, path: Path, tables: Mapping[str, str], tool: str) -> None:
        """Read an export.

        Args:
            path: the file.
            tables: names of tables, with the keys of the lists that have their rows.
            tool: the name of the tool, for messages.

        Raises:
            Invalid: it is no JSON, or has none of the lists.
        """
        self._lists: dict[str, list[dict[str, Any]]] = {}
        # Entries that are no rows
        self.left_out = 0
        data = read_json(path)
        named = dict_or_empty(data)
        lists = {table: rows for table, key in tables.items() if isinstance(rows := named.get(key), list)}
        if not any(lists.values()) or any(named.get(key) for table, key in tables.items() if table not in lists):
            raise Invalid(f"{flat(str(path))} is no export of {tool}: it {described(data)}")
        for table, rows in lists.items():
            self._lists[table] = [row for row in rows if isinstance(row, dict)]
            self.left_out += len(rows) - len(self._lists[table])

    def rows(self, table: str, names: Sequence[str], *, order: str = "") -> Iterator[dict[str, Any]]:
        """Yield the rows of a table with the given columns; those that they lack are None."""
        rows = self._lists.get(table, [])
        if order:
            rows = sorted(rows, key=lambda row: [_sortable(row.get(name)) for name in order.split(", ")])
        for row in rows:
            yield {name: row.get(name) for name in names}

    def joined(self, exports: Iterable[ToolExport]) -> ToolExport:
        """Add the rows of other exports to this one, and return it."""
        for export in exports:
            self.left_out += export.left_out
            for table, rows in export._lists.items():
                self._lists.setdefault(table, []).extend(rows)
        return self

    def keep_newest(self, table: str, names: Sequence[str], *, by: Sequence[str]) -> None:
        """Keep one of the rows that are alike in the given columns: the one with the latest time."""
        newest: dict[str, dict[str, Any]] = {}
        for row in sorted(self._lists.get(table, []), key=lambda row: max(str(row.get(name) or "") for name in by)):
            newest[repr(list(map(row.get, names)))] = row
        self._lists[table] = list(newest.values())

    def add_missing(self, table: str, name: str, *, of: tuple[str, str], also: Sequence[str] = ()) -> None:
        """Add the rows that the rows of another table name by one of its columns and that are not there."""
        rows = self._lists.setdefault(table, [])
        names = {row.get(name) for row in rows if isinstance(row.get(name), str)}
        for row in self._lists.get(of[0], []):
            owner = row.get(of[1])
            if isinstance(owner, str) and owner not in names:
                names.add(owner)
                rows.append({name: owner, **{column: row.get(column) for column in also}})


def _sortable(value: object) -> tuple[float, str]:
    if isinstance(value, int | float):
        return value, ""
    return 0, text_of(value)


def text_of(value: object) -> str:
    """Return a value as text, "" if it is none: JSON has any value, and SQLite puts any type into any column."""
    return value if isinstance(value, str) else ""


def dict_or_empty(value: object) -> dict[str, Any]:
    """Return a value of another tool's JSON if it is an object."""
    return value if isinstance(value, dict) else {}


def list_or_empty(value: object) -> list[Any]:
    """Return a value of another tool's JSON if it is a list."""
    return value if isinstance(value, list) else []


def object_in(value: object) -> dict[str, Any]:
    """Return an object, or that of a JSON text or its bytes; empty if there is none."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    try:
        return dict_or_empty(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, RecursionError):
        return {}


def time_of(value: object) -> datetime | None:
    """Return a time that is given in seconds, milliseconds or ISO 8601, None if it is none since 2000."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
            moment = moment.replace(tzinfo=moment.tzinfo or UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            is_seconds = value <= 1e11  # which is beyond the year 5000
            moment = datetime.fromtimestamp(value if is_seconds else value / 1000, UTC)
        else:
            return None
        return moment.astimezone(UTC) if moment.year >= 2000 else None
    except (ValueError, OverflowError, OSError):
        return None


def message_text(content: object) -> str:
    """Return the text of a message's parts: no tools, images or thoughts."""
    if isinstance(content, str):
        return content.strip()
    parts = map(dict_or_empty, list_or_empty(content))
    text_parts = [part for part in parts if part.get("type", "text") == "text" and not part.get("thought")]
    return "\n".join(filter(None, (text_of(part.get("text")).strip() for part in text_parts)))


# Lists by which exports of other tools are known
_SHAPES = (
    ({"export_metadata", "memories"}, "mcp-memory-service"),
    ({"exportedAt", "observations"}, "claude-mem"),
    ({"exported_at", "observations"}, "engram"),
    ({"entities", "relations"}, "server-memory"),
    ({"results"}, "mem0"),
)


def described(data: Any) -> str:
    """Return what the JSON of another tool is, after "it": ``has the keys results, total``."""
    if isinstance(data, list):
        return f"is a list of {len(data)} entries"
    if not isinstance(data, dict):
        return "is a single value"
    for keys, tool in _SHAPES:
        if keys <= data.keys():
            return f"looks like one of {tool}"
    names = ", ".join(flat(key)[:40] for key in list(data)[:5])
    return f"has the keys {names}" if names else "is empty"


def is_json(path: Path) -> bool:
    """Return whether a file begins as JSON; false if it cannot be read."""
    return read_head(path, 64).strip(_UNICODE_MARKS)[:1] in (b"{", b"[")


def file_in(path: Path, name: str) -> Path:
    """Return a file, or the file of that name in a folder.

    Raises:
        Invalid: the folder has none; the message says what it has.
    """
    if not is_folder(path):
        return path
    if (path / name).is_file():
        return path / name
    try:
        names = [flat(entry.name) for entry in sorted(path.iterdir())[: _MOST_NAMED + 1]]
    except OSError as error:
        raise _unreadable(path, error) from error
    what = "it is empty"
    if names:
        what = f"it has {', '.join(names[:_MOST_NAMED])}"
    if len(names) > _MOST_NAMED:
        what += " and more"
    raise Invalid(f"{flat(str(path))} has no {name}: {what}")


def is_sqlite(path: Path) -> bool:
    """Return whether a file begins as a database of SQLite.

    Raises:
        Invalid: it cannot be read.
    """
    with _open_file(path) as file:
        return file.read(len(SQLITE)) == SQLITE


def read_settings(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; empty if there is none, or none that can be read."""
    try:
        return object_in(read_text(path))
    except Invalid:
        return {}


def read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file; none if it cannot be read."""
    try:
        with _open_file(path) as file:
            return file.read(size)
    except (Invalid, OSError):
        return b""


def _open_file(path: Path, *, follows_links: bool = False) -> BinaryIO:
    try:
        return os.fdopen(open_foreign(path, follows_links=follows_links), "rb")
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> Invalid:
    return Invalid(f"can't read {flat(str(path))}: {error.strerror}")


Wanted = Callable[[PurePosixPath], bool]
# Instructions that clients keep out of the repository
_OF_ONE_PERSON = ("CLAUDE.local.md",)


def files_below(
    folder: Path, *, includes: Wanted, enters: Wanted, reads_ignored: bool = False
) -> Iterator[Path | LeftOutRecord]:
    """Yield the wanted files in a stable order, and what is left out; both conditions get the path below the folder.

    Files that git ignores are not wanted, unless ``reads_ignored`` or the folder is ignored itself.

    Raises:
        Invalid: it is no folder, or has too many files.
        Unavailable: it is in a repository that git cannot read.
    """
    if not folder.is_dir():
        raise Invalid(f"{flat(str(folder))} is not a folder")
    is_kept = _is_any if reads_ignored else _not_ignored(folder)
    stack = [PurePosixPath()]
    room = MAX_ENTRIES
    while stack:
        below = stack.pop()
        entries = _entries(folder / below, room)
        if isinstance(entries, LeftOutRecord):
            yield entries
            continue
        room -= len(entries)
        if room < 0:
            raise Invalid(f"{flat(str(folder))} has more than {MAX_ENTRIES:,} files; name a smaller folder")
        folders = []
        by_path = {below / entry.name: entry for entry in entries}
        for path in filter(is_kept, by_path):
            entry = by_path[path]
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif entry.is_file(follow_symlinks=False):
                if includes(path):
                    yield folder / path
            elif includes(path) or (enters(path) and is_folder(folder / path)):
                yield LeftOutRecord(entry.path, "a link, which may lead out of the folder, or not a file")
        stack += filter(enters, reversed(folders))


def _is_any(_: PurePosixPath) -> bool:
    return True


def _not_ignored(folder: Path) -> Wanted:
    names = git.list_files(folder)
    if names is None:
        return _is_any
    listed = set(map(PurePosixPath, names))
    folders = {parent for path in listed for parent in path.parents}

    def is_kept(path: PurePosixPath) -> bool:
        if path in listed or path in folders or path.name in _OF_ONE_PERSON:
            return True
        # git lists a repository below the folder as a whole
        return not listed.isdisjoint(path.parents)

    return is_kept


def _entries(folder: Path, room: int) -> list[os.DirEntry[str]] | LeftOutRecord:
    if len(folder.parts) > MAX_DEPTH:
        return LeftOutRecord(str(folder), f"it is more than {MAX_DEPTH} levels deep")
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, room + 1), key=lambda entry: entry.name)
    except OSError as error:
        return LeftOutRecord(str(folder), f"it can't be read: {error.strerror}")
