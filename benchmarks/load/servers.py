"""The hub and the server of one project, as processes, with the memory that they take."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import httpx2

from benchmarks.speed import processes
from benchmarks.speed.rest import drain_output

_POLL_SECONDS = 0.1


class HttpServer:
    """A process of the hub that listens at a port of its own, also after it was killed and started again."""

    def __init__(self, home: Path, *arguments: str, option: str, path: str) -> None:
        self._home = home
        self._port = _free_port()
        self._arguments = (*arguments, option, str(self._port))
        self._path = path
        self._errors = home / f"{arguments[0]}.stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self.peak_bytes = 0

    @classmethod
    def hub(cls, home: Path) -> HttpServer:
        return cls(home, "serve", option="--port", path="/api/v1/health")

    @classmethod
    def of_one_project(cls, home: Path, project: str) -> HttpServer:
        return cls(home, "mcp", "--project", project, option="--http", path="/.well-known/none")

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start the process and wait until it answers.

        Raises:
            RuntimeError: it has ended, or did not answer within a minute.
        """
        self._process = processes.start(self._home, self._errors, *self._arguments)
        drain_output(self._process)
        async with httpx2.AsyncClient() as client:
            for _ in range(round(processes.ANSWER_SECONDS / _POLL_SECONDS)):
                if self._process.poll() is not None:
                    break
                try:
                    await client.get(f"{self.origin}{self._path}")
                except httpx2.HTTPError:
                    await asyncio.sleep(_POLL_SECONDS)
                else:
                    return
        raise RuntimeError(f"{self._arguments[0]} did not start: {processes.last_words(self._errors)}")

    def measure(self) -> None:
        if self._process and self._process.poll() is None:
            self.peak_bytes = max(self.peak_bytes, processes.peak_resident_bytes(self._process))

    def sample(self) -> dict[str, int]:
        """Return what the hub's processes take now: proportional set size in bytes, threads, open files (Linux)."""
        family = _family(self._process.pid) if self._process else []
        return {
            "processes": len(family),
            "proportional_bytes": sum(_proportional_bytes(pid) for pid in family),
            "threads": sum(_count(f"/proc/{pid}/task") for pid in family),
            "open_files": sum(_count(f"/proc/{pid}/fd") for pid in family),
        }

    def kill(self) -> None:
        self.measure()
        if self._process:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        self.measure()
        if self._process:
            processes.stop(self._process)


def _family(pid: int) -> list[int]:
    children = [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in _read(task).split()]
    return [pid, *(member for child in children for member in _family(child))]


def _proportional_bytes(pid: int) -> int:
    lines = [line.split() for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines()]
    return 1024 * sum(int(words[1]) for words in lines if words[0] == "Pss:")


def _count(folder: str) -> int:
    try:
        return len(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return 0


# A process may have ended
def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
