"""The client window that a process belongs to, and the session that the window is in.

A client starts its hooks and its MCP server as descendants of one process. Hooks know the client's session, the MCP
server does not: hooks note it under the client's process, and the server looks it up there. Standard library only.
"""

from __future__ import annotations

import os

from memoryhub.env import home_text

TYPE_CHECKING = False  # type checkers know the name; importing typing takes time
if TYPE_CHECKING:
    import threading

FOLDER = "run/windows"
CHECK_SECONDS = 60.0
_MAX_DEPTH = 8
# Programs between a client and what it starts.
_WRAPPERS = frozenset(
    {
        *("sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "busybox", "env", "nice", "timeout", "setsid"),
        *("uv", "uvx", "pipx", "npx", "npm exec", "memory-hub"),
    }
)


class Process:
    """A running process: its id is reused by the system, its id with its start time is not."""

    __slots__ = ("name", "parent", "pid", "started")

    def __init__(self, pid: int, parent: int, name: str, started: str) -> None:
        self.pid = pid
        self.parent = parent
        self.name = name
        self.started = started

    @property
    def key(self) -> str:
        return f"{self.pid}-{self.started}"


def window() -> str:
    """Return the key of the client's process that started this one, such as ``4711-8230145``, or "" if unknown."""
    pid = os.getppid()
    for _ in range(_MAX_DEPTH):
        process = find_process(pid)
        if process is None or process.pid <= 1:
            return ""
        if process.name.rpartition("/")[2].lstrip("-") not in _WRAPPERS:
            return process.key
        pid = process.parent
    return ""


def find_process(pid: int) -> Process | None:
    """Return a process, or None if it has ended or belongs to somebody whose processes are hidden."""
    try:
        # The name is in parentheses and may itself hold parentheses and spaces: proc(5).
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            head, _, tail = file.read().rpartition(")")
    except FileNotFoundError:
        return None if os.path.isdir("/proc/self") else _ask_ps(pid)  # noqa: PTH112
    except OSError:
        return None
    fields = tail.split()
    return Process(pid, int(fields[1]), head.partition("(")[2], fields[19])


def _ask_ps(pid: int) -> Process | None:
    """Systems without /proc, such as macOS."""
    import subprocess

    command = ["ps", "-o", "ppid=,lstart=,comm=", "-p", str(pid)]
    try:
        line = subprocess.run(command, capture_output=True, text=True, timeout=2, check=True).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    # Such as: 501 Sun Nov 22 17:53:01 2026 /bin/zsh.
    words = line.split(None, 6)
    if len(words) < 7:
        return None
    return Process(pid, int(words[0]), words[6].strip(), "_".join(words[1:6]))


def is_running(key: str) -> bool:
    """Return whether the process of a window's key still runs."""
    pid, _, started = key.partition("-")
    process = find_process(int(pid)) if pid.isdecimal() else None
    return process is not None and process.started == started


def note_session(key: str, session_id: str) -> None:
    """Note the session that a window is in now; nothing is noted of a window whose client has ended."""
    if not _is_key(key) or session_of(key) == session_id or not is_running(key):
        return
    from pathlib import Path

    from memoryhub.core.disk import replacing

    folder = f"{home_text()}/{FOLDER}"
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    with replacing(Path(folder, key), synced=False) as file:
        file.write(session_id.encode())


# Every hook imports this module, so it imports here what takes long
def _is_key(key: str) -> bool:
    import re

    return re.fullmatch(r"[0-9]{1,10}-[A-Za-z0-9_:.]{1,40}", key) is not None


def session_of(key: str) -> str:
    """Return the session that a window is in, or "" if its client has no hooks here."""
    if not _is_key(key):
        return ""
    try:
        with open(f"{home_text()}/{FOLDER}/{key}", encoding="utf-8") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def keep(stop: threading.Event, *, every: float = CHECK_SECONDS) -> None:
    """Remove the notes of closed windows and old sessions, until ``stop`` is set. For every hub, however started."""
    from memoryhub.core.session_places import forget_old_places

    while True:
        forget_closed()
        forget_old_places()
        if stop.wait(every):
            return


def forget_closed() -> None:
    """Remove the notes of windows whose client has ended."""
    folder = f"{home_text()}/{FOLDER}"
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return
    for name in names:
        key = name[1:].rpartition(".")[0] if name.startswith(".") else name  # a draft has the key in its name
        if not is_running(key):
            try:
                os.unlink(f"{folder}/{name}")  # noqa: PTH108
            except OSError:
                continue
