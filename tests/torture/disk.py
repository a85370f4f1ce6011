"""A disk that keeps only what was synced: what a folder may hold after a power cut.

The model is what POSIX promises, not what one file system does. A sector holds any content that it had since the last
sync of its file. A file has any length of that time. A folder has lost any number of its last entries, counted from the
last sync of the folder: creations, renames, links and removals. Sectors are never torn, and entries of one folder reach
the disk in order, as journals keep them.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.torture.disk_entries import (
    Change,
    Entry,
    File,
    Folder,
    Move,
    add_durable_entries,
    all_files,
    all_folders,
    apply_change,
    count_kept,
    names_after,
    one_of,
    put,
    resize,
    sync_folder,
)
from tests.torture.strace import Call


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
        self,
        folder: Folder,
        target: Path,
        names: dict[Folder, dict[str, Entry]],
        share: float,
        chance: random.Random,
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
