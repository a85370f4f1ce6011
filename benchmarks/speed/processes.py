"""Start the hub's processes as clients and users start them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from memories.embeddings.engine import NONE
from memoryhub.config.current_settings import PREFIX

ANSWER_SECONDS = 60.0
_END_SECONDS = 30.0
_MANAGE = Path(__file__).resolve().parents[2] / "manage.py"


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(_MANAGE), *arguments]


def environment(home: Path, *, meaning: bool = False) -> dict[str, str]:
    """Return an environment whose only setting of the hub is the home folder.

    Args:
        home: the home folder.
        meaning: whether to embed texts; if so, the web server's worker is busy with it during a measurement.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MEMORY_HUB_") and name != "DJANGO_SETTINGS_MODULE"
    }
    own = {"MEMORY_HUB_HOME": str(home), "MEMORY_HUB_AUTOSTART": "off"}
    return {**inherited, **own, **({} if meaning else {f"{PREFIX}EMBEDDING_MODEL": NONE})}


def start(home: Path, errors: Path, *arguments: str, meaning: bool = False) -> subprocess.Popen[bytes]:
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


# ``mcp`` ends when its pipes close; kills it at the deadline.
def end(process: subprocess.Popen[bytes]) -> None:
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
    process.terminate()
    end(process)


def last_words(errors: Path) -> str:
    return errors.read_text(errors="replace").strip()[-500:]


def peak_resident_bytes(process: subprocess.Popen[bytes]) -> int:
    """Return the peak resident memory of a process; outside Linux the process is ended to read it."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return peak_at_end(process)
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def peak_at_end(process: subprocess.Popen[bytes]) -> int:
    _close_pipes(process)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
