"""What is on a simulated disk: files and folders, with what was not synced of each."""

from __future__ import annotations

import random
from collections.abc import Iterator
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
