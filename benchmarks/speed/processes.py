"""The hub's own processes, started as a client or a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from memories.embeddings.choice import NONE
from memoryhub.config.layers import PREFIX

ANSWER_SECONDS = 60.0
_END_SECONDS = 30.0
_MANAGE = Path(__file__).resolve().parents[2] / "manage.py"


def command(*arguments: str) -> list[str]:
    """Return the command line of the hub in a process of its own."""
    return [sys.executable, str(_MANAGE), *arguments]


def environment(home: Path, *, meaning: bool = False) -> dict[str, str]:
    """Return an environment in which nothing is the hub's but the home folder.

    Args:
        home: that folder.
        meaning: whether texts are embedded and found by meaning; else the worker of a web server would be busy with
            it while something else is measured.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MEMORY_HUB_") and name != "DJANGO_SETTINGS_MODULE"
    }
    own = {"MEMORY_HUB_HOME": str(home), "MEMORY_HUB_AUTOSTART": "off"}
    return {**kept, **own, **({} if meaning else {f"{PREFIX}EMBEDDING_MODEL": NONE})}


def start(home: Path, errors: Path, *arguments: str, meaning: bool = False) -> subprocess.Popen[bytes]:
    """Start the hub with pipes to its input and output, and what it says on stderr in the file ``errors``."""
    with errors.open("wb") as stderr:
        return subprocess.Popen(  # noqa: S603 - our own command line
            command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment(home, meaning=meaning),
            cwd=home,
            bufsize=0,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """Close the process' pipes, by which ``mcp`` ends, and wait; kill it at the deadline."""
    _close_pipes(process)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end that reads no input, and wait."""
    process.terminate()
    end(process)


def last_words(errors: Path) -> str:
    """Return the end of what a process said on stderr."""
    return errors.read_text(errors="replace").strip()[-500:]


def peak_resident_bytes(process: subprocess.Popen[bytes]) -> int:
    """Return the most memory that a running process has had resident.

    Linux tells it of a process that lives on; elsewhere the process is ended to learn it.
    """
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return peak_at_end(process)
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def peak_at_end(process: subprocess.Popen[bytes]) -> int:
    """End a process by closing its pipes, and return what it had resident at most."""
    _close_pipes(process)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
