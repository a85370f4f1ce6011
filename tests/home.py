"""A hub's home for one test run: a temporary folder, chosen before the settings are loaded."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

RUN_HOME_VARIABLE = "MEMORY_HUB_TEST_HOME"


def use_temporary_home() -> None:
    """Point ``MEMORY_HUB_HOME`` at a new folder that goes away when this process ends."""
    folder = tempfile.mkdtemp(prefix="memory-hub-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["MEMORY_HUB_HOME"] = os.environ[RUN_HOME_VARIABLE] = folder


def run_home() -> Path:
    """Return the folder of the whole run, which keeps what tests share."""
    return Path(os.environ[RUN_HOME_VARIABLE])
