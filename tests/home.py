"""A hub's home for one test run: a temporary folder, chosen before the settings are loaded."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

RUN_HOME_VARIABLE = "MEMORY_HUB_TEST_HOME"
# Variables that turn coverage off in processes that are killed, because it would be lost, and in hundreds of short
# ones, because it takes most of their time
UNMEASURED: dict[str, Any] = {"COVERAGE_PROCESS_CONFIG": "", "COVERAGE_PROCESS_START": ""}


def use_temporary_home() -> None:
    """Point ``MEMORY_HUB_HOME`` at a new folder that goes away when this process ends."""
    folder = tempfile.mkdtemp(prefix="memory-hub-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TZ"] = "UTC"  # of which the tests' dates are, unless one sets another
    os.environ["MEMORY_HUB_HOME"] = os.environ[RUN_HOME_VARIABLE] = folder


def contents(folder: Path) -> dict[Path, bytes]:
    """Return what is in each file under a folder, but for those of a moment that are gone when they are read."""
    found: dict[Path, bytes] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            with contextlib.suppress(FileNotFoundError):
                found[path] = path.read_bytes()
    return found


def run_home() -> Path:
    return Path(os.environ[RUN_HOME_VARIABLE])
