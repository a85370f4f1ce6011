"""Files and folders that survive a power cut, and stamps that show whether a file has changed."""

from __future__ import annotations

import os
from _thread import get_ident  # threading takes long to import
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from memoryhub import env


def make_folder(folder: Path) -> None:
    """Create a private folder of the home, and sync it and all folders above."""
    # A power cut can remove an unsynced folder together with synced files in it.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    home = env.home()
    for parent in folder.parents:
        if not parent.is_relative_to(home):
            break
        sync(parent)
    with suppress(PermissionError):  # the user may enter the folder, but not read it
        sync(home.parent)


@contextmanager
def replacing(path: Path, *, mode: int = 0o600, synced: bool = True) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of ``path`` when the block ends.

    Readers, and a crash, find the old content or the new one, never a part. After an error the old file stays.

    Args:
        path: in an existing folder. A link is replaced, not followed.
        mode: of the new file, less what the umask takes away.
        synced: whether the new content survives a power cut; where not, a cut can leave an empty file.
    """
    # Each thread has a draft of its own; doctor finds by the process those that a killed one left
    draft = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            yield file
            if synced:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):  # the disk may be read-only
            draft.unlink()
        raise


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    from memoryhub.core import clock  # here, because hooks replace files without a clock

    return abs(clock.now_ns() - changed) > seconds * 1e9
