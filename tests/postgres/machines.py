"""Hubs with homes of their own, which are the machines of one hub: they have one database."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests import forks
from tests.forks import Fork
from tests.home import RUN_HOME_VARIABLE
from tests.postgresql import URL_VARIABLE
from tests.web.server import Server

PRELUDE = """
import json, os, sys
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import log
from memoryhub.core.errors import HubError
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import list_projects, project_store, use_store
"""


@contextmanager
def new_home() -> Iterator[Path]:
    """Yield the home of one more machine, which does not exist yet."""
    folder = Path(tempfile.mkdtemp(prefix="memory-hub-machine-", dir=os.environ.get(RUN_HOME_VARIABLE)))
    try:
        yield folder / "home"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start(home: Path, url: str, *options: str) -> Server:
    with mock.patch("tests.web.server.variables_of", lambda path: variables(path, url)):
        return Server(home, *options)


@contextmanager
def serving(url: str, *options: str) -> Iterator[Server]:
    with new_home() as home:
        started = start(home, url, *options)
        try:
            yield started.wait_until_ready()
        finally:
            started.close()


def variables(home: Path, url: str) -> dict[str, str]:
    return {"MEMORY_HUB_HOME": str(home), URL_VARIABLE: url}


def run_python(program: str, home: Path, url: str) -> Any:
    """Run a program with what ``PRELUDE`` imports on one more machine, and return the JSON of its last line."""
    process = begin_python(program, home, url)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def begin_python(program: str, home: Path, url: str, *, stdout: Any = subprocess.PIPE) -> Fork:
    return Fork(PRELUDE + program, environment={"MEMORY_HUB_LOG": "CRITICAL", **variables(home, url)}, stdout=stdout)


def run(*arguments: str, home: Path, url: str) -> tuple[int, str]:
    """Run a command on a machine, and return its exit code and all that it wrote, errors first."""
    code, printed, errors = forks.run(*arguments, **variables(home, url))
    return code, errors + printed
