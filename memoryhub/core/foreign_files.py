"""Read files that someone else may have written: those of a repository, a client or another tool.

Such a file may be a link to a device, a named pipe that nobody writes to, or larger than the memory.
"""

# Standard library only and quick to import: hooks read a folder's settings before all else.

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False  # type checkers know the name; importing typing takes time
if TYPE_CHECKING:
    from pathlib import Path

# For settings and git's own files
SETTINGS_BYTES = 64 * 1024
# For the hub's own file
CONFIG_BYTES = 1024 * 1024
_OFF = frozenset({"false", "0", "no", "off"})
# tomllib's time and memory grow with the square of a key's parts: 64 KB of one dotted key take 20 s and 4 GB
_MAX_DOTS = 32
_CHUNK = 1024 * 1024


def open_foreign(path: str | Path, *, follows_links: bool = True) -> int:
    """Return a descriptor of a plain file, without waiting for a pipe or a terminal.

    Args:
        path: of the file.
        follows_links: whether the file itself may be a link; the folders above it always may.

    Raises:
        OSError: it can't be opened or is no plain file; ``strerror`` is the reason.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    if not follows_links:
        flags |= os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:
        raise OSError(errno.EINVAL, "its name is not a file name", str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return descriptor


def read_foreign(path: str | Path, *, limit: int = SETTINGS_BYTES, follows_links: bool = True) -> bytes:
    """Return the content of a plain file of at most ``limit`` bytes, however it grows meanwhile.

    Raises:
        OSError: it can't be read, is no plain file or is larger; ``strerror`` is the reason.
    """
    descriptor = open_foreign(path, follows_links=follows_links)
    try:
        size = os.fstat(descriptor).st_size
        chunks: list[bytes] = []
        length = 0
        while size <= limit and length <= limit:
            chunk = os.read(descriptor, min(_CHUNK, limit + 1 - length))
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            length += len(chunk)
    finally:
        os.close(descriptor)
    raise OSError(errno.EFBIG, f"it is larger than {_in_words(limit)}", str(path))


def read_text(path: str, *, limit: int = SETTINGS_BYTES) -> str:
    """Return the text of a settings file; "" if it can't be read."""
    try:
        return read_foreign(path, limit=limit).decode()
    except (OSError, ValueError):
        return ""


def switch_in(text: str, name: str) -> bool | None:
    """Return a setting of TOML that is true or false; None if there is none, or the text is no TOML."""
    if name not in text:
        return None
    import tomllib  # here, because the import takes as long as a whole hook may

    try:
        value = tomllib.loads(text).get(name)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, bool) else None


def is_off(value: str) -> bool:
    """Return whether the value of a variable switches something off."""
    return value.strip().lower() in _OFF


def holds(path: str | Path, text: str) -> bool:
    """Return whether a path is a plain file with this text; no more than that is read."""
    content = text.encode()
    try:
        return read_foreign(path, limit=len(content), follows_links=False) == content
    except OSError:
        return False


def _in_words(size: int) -> str:
    return f"{size // 2**20} MB" if size >= 2**20 else f"{size // 1024} KB"


def check_toml(text: str, *, longest_line: int = 1_000) -> None:
    """Refuse TOML that takes long to parse, and lines that no settings have.

    Raises:
        ValueError: the message names the line.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > longest_line:
            raise ValueError(f"line {number} has more than {longest_line:,} characters")
        keys = [line] if line.lstrip().startswith("[") else line.split("=")[:-1]
        if any(key.count(".") > _MAX_DOTS for key in keys):
            raise ValueError(f"a key in line {number} has more than {_MAX_DOTS} dots")
