"""Failing disks: errors that strace injects into running processes, and small file systems that fill up."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.web.server import poll

STORE_FILES = ("events.db", "events.db-wal")
ANCHOR = ("head",)


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    calls: str
    error: str
    files: tuple[str, ...] = STORE_FILES

    def options(self, store: Path) -> list[str]:
        paths = [part for name in self.files for part in ("-P", str(store / name))]
        return [
            *paths,
            "-e",
            f"trace={self.calls}",
            "-e",
            f"inject={self.calls}:error={self.error}",
            "-e",
            "signal=none",
        ]


@contextlib.contextmanager
def failing(fault: Fault, store: Path, pids: Sequence[int]) -> Iterator[None]:
    attach = [part for pid in pids for part in ("-p", str(pid))]
    command = ["strace", "-f", "-qq", "-o", os.devnull, *fault.options(store), *attach]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as strace:
        try:
            poll(lambda: all(map(_is_traced, pids)) or strace.poll() is not None, what="strace to attach")
            assert strace.poll() is None, "strace could not attach"
            yield
        finally:
            strace.terminate()


def under(fault: Fault, store: Path) -> list[str]:
    """Return what to put before a command, so that it meets the fault from its start."""
    return ["strace", "-f", "-qq", "--seccomp-bpf", "-o", os.devnull, *fault.options(store)]


def _is_traced(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        states = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        return all("TracerPid:\t0\n" not in state for state in states)
    return False


@contextlib.contextmanager
def small_disk(place: Path, *, megabytes: int) -> Iterator[bool]:
    """Mount a file system in memory on a new folder; yields False where this user may not."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def make_read_only(disk: Path) -> None:
    """Remount a small disk; no process may have a file of it open for writing."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Fill a file system to its last byte, and return the file that does so."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(512)):
            pass
    return ballast
