"""How to start a module of the hub as a process of its own. Standard library only: hooks import it."""

from __future__ import annotations

import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module.

    Python then imports nothing from the working folder (-P), which may be a repository that someone else wrote.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment(**changes: str) -> dict[str, str]:
    """Return this process's environment with changes; modules are found without the working folder."""
    # A relative folder would be another one in each process
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(folder)]  # noqa: PTH117
    return {**os.environ, "PYTHONPATH": os.pathsep.join([_ROOT, *folders]), **changes}
