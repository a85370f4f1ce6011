"""A disk that keeps only what was synced: what a folder may hold after a power cut."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class File:
    data: bytearray
    durable: bytearray
    sectors: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    """Contents that were not synced, each with the number of its write."""
    lengths: list[tuple[int, int]] = field(default_factory=list)
    cursor: int = 0
    appends: bool = False


@dataclass(eq=False, slots=True)
class Move:
    durable: bool = False


@dataclass(eq=False, slots=True)
class Change:
    name: str
    entry: Entry | None
    at: int
    move: Move | None = None


@dataclass(eq=False, slots=True)
class Folder:
    names: dict[str, Entry] = field(default_factory=dict)
    durable: dict[str, Entry] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)


Entry = File | Folder


def add_durable_entries(folder: Folder, path: Path) -> None:
    for each in path.iterdir():
        if each.is_dir():
            inner = Folder()
            add_durable_entries(inner, each)
            folder.names[each.name] = folder.durable[each.name] = inner
        elif each.is_file():
            content = each.read_bytes()
            folder.names[each.name] = folder.durable[each.name] = File(bytearray(content), bytearray(content))


def apply_change(names: dict[str, Entry], change: Change) -> None:
    if change.entry is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.entry


def sync_folder(folder: Folder, began: int) -> None:
    for change in folder.changes:
        if change.at <= began:
            apply_change(folder.durable, change)
            if change.move:
                change.move.durable = True
    folder.changes = [change for change in folder.changes if change.at > began]


def count_kept(folder: Folder, share: float, chance: random.Random) -> int:
    """Return how many of the changes that were not synced have reached the disk."""
    total = len(folder.changes)
    return round(total * share) if share in {0.0, 1.0} else chance.randint(0, total)


def names_after(folder: Folder, count: int, moves: set[Move | None]) -> dict[str, Entry]:
    names = dict(folder.durable)
    for number, change in enumerate(folder.changes):
        if number < count or (change.move and (change.move.durable or change.move in moves)):
            apply_change(names, change)
    return names


def all_folders(folder: Folder) -> Iterator[Folder]:
    """Yield a folder and all below it, those too whose names are on the disk alone."""
    seen = {folder}
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        yield here
        entries = [*here.names.values(), *here.durable.values(), *(change.entry for change in here.changes)]
        new = {entry for entry in entries if isinstance(entry, Folder)} - seen
        seen |= new
        waiting += new


def all_files(folder: Folder, prefix: str = "") -> Iterator[tuple[str, File]]:
    for name, entry in folder.names.items():
        if isinstance(entry, Folder):
            yield from all_files(entry, f"{prefix}{name}/")
        else:
            yield prefix + name, entry


def one_of(versions: list[T], share: float, chance: random.Random) -> T | None:
    """Return what the disk has of contents in the order of their writing; None is what it had before."""
    if not versions or share == 0 or (share < 1 and chance.random() >= share):
        return None
    return versions[-1] if share == 1 else chance.choice(versions)


def put(data: bytearray, offset: int, content: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(content)] = content


def resize(data: bytearray, length: int) -> None:
    del data[length:]
    data.extend(bytes(length - len(data)))


_REFUSED = ("sendfile", "copy_file_range")
_LONGEST_WRITE = 1 << 24

_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>)?(.*)")
_UNFINISHED = " <unfinished ...>"
_WHOLE = re.compile(r"(\w+)\((.*)\) += (-?\d+)(.*)", re.DOTALL)
_HEX = r"((?:\\x[0-9a-f]{2})*)"
_DESCRIPTOR = re.compile(rf"(?:\d+|AT_FDCWD)<{_HEX}>(\(deleted\))?")
_STRING = re.compile(rf'"{_HEX}"')


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that succeeded.

    ``began`` is the number of calls that had ended when it began: a sync covers those, and no later ones.
    """

    name: str
    began: int
    paths: tuple[str, ...]
    """Absolute paths, by argument. Empty for a descriptor whose file has no name any more."""
    data: bytes
    flags: str
    number: int
    """The last argument, where it is a number: an offset or a length."""
    result: int


def recording(command: Sequence[str], output: Path) -> list[str]:
    """Return the command that runs another one, and all that it starts, and records them to a file."""
    return [
        *("strace", "-f", "-qq", "-y", "-xx", "--seccomp-bpf", "-s", str(_LONGEST_WRITE), "-o", str(output)),
        *("-e", "signal=none", "-e", "trace=" + ",".join(f"?{name}" for name in (*_HANDLERS, *_REFUSED))),
        *(part for name in _REFUSED for part in ("-e", f"inject=?{name}:error=ENOSYS")),
        *command,
    ]


def read_calls(output: Path, *, under: Path) -> Iterator[Call]:
    """Yield the calls of a recording that succeeded and name something in a folder, as they ended."""
    place = "".join(f"\\x{byte:02x}" for byte in os.fsencode(under))
    begun: dict[str, tuple[str, int]] = {}
    ended = 0
    with output.open(encoding="ascii") as lines:
        for line in lines:
            pid, resumed, text = _LINE.match(line).groups()  # type: ignore[union-attr]
            if text.endswith(_UNFINISHED):
                begun[pid] = (text.removesuffix(_UNFINISHED), ended)
                continue
            start, began = begun.pop(pid) if resumed else ("", ended)
            call = _parsed(start + text, began) if place in start or place in text else None
            if call:
                ended += 1
                yield call


def _parsed(text: str, began: int) -> Call | None:
    match = _WHOLE.match(text)
    if match is None or match[1] not in _HANDLERS or match[3].startswith("-"):
        return None
    name, arguments, result = match[1], match[2], int(match[3])
    data, files = b"", arguments
    if name.startswith(("write", "pwrite")):
        files, _, written = arguments.partition('"')
        data = b"".join(map(_bytes, re.split(r'"[^"]*"', written.rpartition('"')[0])))[:result]
    last = arguments.rpartition(" ")[2]
    return Call(name, began, _paths(files), data, files, int(last) if last.isdecimal() else 0, result)


def _paths(arguments: str) -> tuple[str, ...]:
    """Return the paths that a call names: by strings, relative to the descriptors before them, or by descriptor."""
    descriptors = [("" if deleted else _text(path)) for path, deleted in _DESCRIPTOR.findall(arguments)]
    strings = [_text(found) for found in _STRING.findall(arguments)]
    if not strings:
        return tuple(descriptors)
    folders = descriptors if len(descriptors) == len(strings) else [""] * len(strings)
    return tuple(os.path.normpath(Path(folder, path)) for folder, path in zip(folders, strings, strict=True))


def _bytes(hexadecimal: str) -> bytes:
    return bytes.fromhex(hexadecimal.replace("\\x", ""))


def _text(hexadecimal: str) -> str:
    return os.fsdecode(_bytes(hexadecimal))


class Disk:
    """A folder as the recorded calls leave it, and as a power cut may leave it.

    Args:
        root: the folder's path in the recording.
        sector: bytes that are written whole or not at all.
    """

    def __init__(self, root: Path, *, sector: int) -> None:
        self._root, self._sector = str(root), sector
        self._top = Folder()
        self._at = 0

    def add_durable(self, folder: Path) -> None:
        add_durable_entries(self._top, folder)

    def apply(self, call: Call) -> None:
        self._at += 1
        handler = _HANDLERS.get(call.name)
        inside = [path == self._root or path.startswith(f"{self._root}/") for path in call.paths]
        if handler and any(inside):
            assert all(inside), call
            handler(self, call)

    def contents(self) -> dict[str, bytes]:
        return {path: bytes(file.data) for path, file in all_files(self._top)}

    def write_after_power_cut(self, target: Path, chance: random.Random) -> None:
        """Write to an empty folder what a power cut at this moment may leave."""
        share = chance.choice((0.0, 0.5, 1.0, chance.random()))
        kept = {folder: count_kept(folder, share, chance) for folder in all_folders(self._top)}
        moves = {change.move for folder, count in kept.items() for change in folder.changes[:count]}
        names = {folder: names_after(folder, count, moves) for folder, count in kept.items()}
        self._write(self._top, target, names, share, chance)

    def _write(
        self, folder: Folder, target: Path, names: dict[Folder, dict[str, Entry]], share: float, chance: random.Random
    ) -> None:
        target.mkdir(mode=0o700, exist_ok=True)
        for name, entry in names[folder].items():
            if isinstance(entry, Folder):
                self._write(entry, target / name, names, share, chance)
            else:
                (target / name).write_bytes(self._after_power_cut(entry, share, chance))
                (target / name).chmod(0o600)

    def _after_power_cut(self, file: File, share: float, chance: random.Random) -> bytes:
        data = bytearray(file.durable)
        for sector, versions in file.sectors.items():
            content = one_of([content for _, content in versions], share, chance)
            if content is not None:
                put(data, sector * self._sector, content)
        length = one_of([length for _, length in file.lengths], share, chance)
        resize(data, len(file.durable) if length is None else length)
        return bytes(data)

    def _folder_of(self, path: str) -> tuple[Folder, str]:
        parts = path[len(self._root) + 1 :].split("/")
        folder = self._top
        for part in parts[:-1]:
            found = folder.names[part]
            assert isinstance(found, Folder), path
            folder = found
        return folder, parts[-1]

    def _entry(self, path: str) -> Entry | None:
        if path == self._root:
            return self._top
        folder, name = self._folder_of(path)
        return folder.names.get(name)

    def _file(self, path: str) -> File:
        found = self._entry(path)
        assert isinstance(found, File), path
        return found

    def _change(self, path: str, entry: Entry | None, move: Move | None = None) -> None:
        folder, name = self._folder_of(path)
        folder.changes.append(Change(name, entry, self._at, move))
        apply_change(folder.names, folder.changes[-1])

    def _open(self, call: Call) -> None:
        entry = self._entry(call.paths[-1])
        if entry is None:
            assert "O_CREAT" in call.flags or call.name == "creat", call
            entry = File(bytearray(), bytearray())
            self._change(call.paths[-1], entry)
        if isinstance(entry, File) and ("O_WRONLY" in call.flags or "O_RDWR" in call.flags):
            entry.cursor = 0
            entry.appends = "O_APPEND" in call.flags
            if "O_TRUNC" in call.flags:
                self._set_length(entry, 0)

    def _write_on(self, call: Call) -> None:
        file = self._file(call.paths[0])
        at = len(file.data) if file.appends else file.cursor
        self._write_at(file, at, call.data)
        file.cursor = at + len(call.data)

    def _write_at_offset(self, call: Call) -> None:
        self._write_at(self._file(call.paths[0]), call.number, call.data)

    def _write_at(self, file: File, offset: int, data: bytes) -> None:
        before = len(file.data)
        put(file.data, offset, data)
        for sector in range(offset // self._sector, (offset + len(data) - 1) // self._sector + 1):
            content = bytes(file.data[sector * self._sector : (sector + 1) * self._sector])
            file.sectors.setdefault(sector, []).append((self._at, content))
        if len(file.data) != before:
            file.lengths.append((self._at, len(file.data)))

    def _seek(self, call: Call) -> None:
        entry = self._entry(call.paths[0])
        if isinstance(entry, File):
            entry.cursor = call.result

    def _truncate(self, call: Call) -> None:
        self._set_length(self._file(call.paths[0]), call.number)

    def _allocate(self, call: Call) -> None:
        file = self._file(call.paths[0])
        offset, length = (int(part) for part in call.flags.split(", ")[-2:])
        self._set_length(file, max(len(file.data), offset + length))

    def _set_length(self, file: File, length: int) -> None:
        if length != len(file.data):
            resize(file.data, length)
            file.lengths.append((self._at, length))

    def _sync(self, call: Call) -> None:
        entry = self._entry(call.paths[0])
        if isinstance(entry, Folder):
            sync_folder(entry, call.began)
        elif entry:
            self._sync_file(entry, call.began)

    def _sync_file(self, file: File, began: int) -> None:
        for sector, versions in list(file.sectors.items()):
            covered = [content for at, content in versions if at <= began]
            if covered:
                put(file.durable, sector * self._sector, covered[-1])
            file.sectors[sector] = [version for version in versions if version[0] > began]
            if not file.sectors[sector]:
                del file.sectors[sector]
        lengths = [length for at, length in file.lengths if at <= began]
        file.lengths = [version for version in file.lengths if version[0] > began]
        resize(file.durable, lengths[-1] if lengths else len(file.durable))

    def _rename(self, call: Call) -> None:
        old, new = call.paths
        entry = self._entry(old)
        assert entry is not None, call
        move = Move()
        self._change(new, entry, move)
        self._change(old, None, move)

    def _link(self, call: Call) -> None:
        self._change(call.paths[1], self._entry(call.paths[0]))

    def _remove(self, call: Call) -> None:
        self._change(call.paths[0], None)

    def _make_folder(self, call: Call) -> None:
        if call.paths[0] != self._root:
            self._change(call.paths[0], Folder())


_HANDLERS = {
    **dict.fromkeys(("open", "openat", "creat"), Disk._open),
    **dict.fromkeys(("write", "writev"), Disk._write_on),
    **dict.fromkeys(("pwrite64", "pwritev", "pwritev2"), Disk._write_at_offset),
    **dict.fromkeys(("ftruncate", "truncate"), Disk._truncate),
    "fallocate": Disk._allocate,
    **dict.fromkeys(("fsync", "fdatasync"), Disk._sync),
    **dict.fromkeys(("rename", "renameat", "renameat2"), Disk._rename),
    **dict.fromkeys(("link", "linkat"), Disk._link),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), Disk._remove),
    **dict.fromkeys(("mkdir", "mkdirat"), Disk._make_folder),
    "lseek": Disk._seek,
}
