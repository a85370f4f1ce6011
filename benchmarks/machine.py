"""Facts about the machine, its load and its software, for the head of a report."""

from __future__ import annotations

import os
import platform
import sqlite3
from contextlib import suppress
from pathlib import Path

import memoryhub
from memoryhub.core import clock


def machine_facts(home: Path) -> dict[str, str | int | float]:
    facts: dict[str, str | int | float] = {
        "date": clock.to_text(clock.now()),
        "memory_hub": memoryhub.__version__,
        "cpus": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "sqlite_driver": sqlite3.connect.__module__,
        "file_system": _file_system(home),
    }
    return {**facts, **load("before")}


def load(when: str) -> dict[str, float]:
    with suppress(OSError, AttributeError):
        return {f"load_{when}": round(os.getloadavg()[0], 2)}
    return {}


def _file_system(folder: Path) -> str:
    """Return the file system's type; on an in-memory one a sync costs nothing."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    mounts = [(Path(line.split()[1]), line.split()[2]) for line in lines]
    holding = [(mount, kind) for mount, kind in mounts if folder.is_relative_to(mount)]
    return max(holding, key=lambda mount: len(mount[0].parts), default=(folder, "unknown"))[1]
