"""Run the command line in a process whose standard streams are a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_at_terminal(*arguments: str, variables: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Return what the command printed on a terminal, with its control sequences."""
    controller, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"TERM": "xterm", "PYTHONPATH": str(ROOT), **(variables or {})}
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, cwd=cwd, start_new_session=True
    ) as process:
        os.close(terminal)
        printed = b""
        try:
            while chunk := os.read(controller, 65_536):
                printed += chunk
        except OSError:  # the end of a terminal, on Linux
            pass
        process.wait(120)
    os.close(controller)
    return printed.decode().replace("\r\n", "\n")
