"""Hubs with homes of their own, which are the machines of one hub: they have one database."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.home import RUN_HOME_VARIABLE, UNMEASURED
from tests.postgresql import URL_VARIABLE
from tests.web import server
from tests.web.server import ROOT, Server


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
    """Run a program with Django set up on one more machine, and return the JSON of its last line."""
    with begin_python(program, home, url) as process:
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return json.loads(output.splitlines()[-1])


def begin_python(program: str, home: Path, url: str, *, stdout: Any = subprocess.PIPE) -> subprocess.Popen[str]:
    settings = {"DJANGO_SETTINGS_MODULE": "memoryhub.settings", "MEMORY_HUB_LOG": "CRITICAL"}
    return subprocess.Popen(
        [sys.executable, "-c", f"import django; django.setup()\n{program}"],
        cwd=ROOT,
        env={**os.environ, **UNMEASURED, **settings, **variables(home, url)},
        stdin=subprocess.PIPE,
        stdout=stdout,
        text=True,
    )


def run(*arguments: str, home: Path, url: str) -> tuple[int, str]:
    """Run a command on a machine, and return its exit code and all that it wrote."""
    with mock.patch("tests.web.server.variables_of", lambda path: variables(path, url)):
        return server.run(*arguments, home=home)
