"""Notice that files have changed, without reading them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from memoryhub.core import clock


class FileStamp(NamedTuple):
    """What differs when a file has changed, but for two writes within the resolution of its time."""

    name: str
    inode: int
    # In nanoseconds since 1970
    changed: int
    size: int


def file_stamps(files: Iterable[Path]) -> list[FileStamp]:
    """Return the stamps of those of the files that exist."""
    stamps = []
    for path in files:
        with suppress(OSError):
            stat = path.stat()
            stamps.append(FileStamp(path.name, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return stamps


def is_settled(changed: int, *, seconds: float) -> bool:
    """Return whether a file that changed then would show another change by its time, which has a resolution.

    Args:
        changed: in nanoseconds since 1970; a file from the future is settled.
        seconds: the resolution.
    """
    return abs(clock.now_ns() - changed) > seconds * 1e9
