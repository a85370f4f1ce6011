"""File operations of real processes, recorded with strace in the order in which the kernel finished them.

With ``-y`` each descriptor comes with its path, so descriptors need not be followed through forks and threads. Calls
that copy between files inside the kernel are refused, so that programs fall back to writing what they read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_CALLS = (
    "open openat creat write pwrite64 writev pwritev pwritev2 ftruncate truncate fallocate fsync fdatasync rename "
    "renameat renameat2 link linkat unlink unlinkat mkdir mkdirat rmdir lseek"
).split()
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
        *("-e", "signal=none", "-e", "trace=" + ",".join(f"?{name}" for name in (*_CALLS, *_REFUSED))),
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
    if match is None or match[1] not in _CALLS or match[3].startswith("-"):
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
