"""Notice that files have changed, without reading them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class FileStamp(NamedTuple):
    """What differs when a file has changed, but for two writes within the resolution of its time."""

    name: str
    inode: int
    # In nanoseconds since 1970
    changed: int
    size: int


def file_stamps(files: Iterable[Path]) -> list[FileStamp]:
    """Return the stamps of those of the files that exist."""
    found = []
    for path in files:
        with suppress(OSError):
            stat = path.stat()
            found.append(FileStamp(path.name, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return found
