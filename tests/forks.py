"""Processes that start in 20 ms instead of a second: forks of one that has loaded the hub, for each database.

They are processes like others, with an environment, pipes and connections of their own, and can be killed. A test
process starts such a parent when it first needs one; the parent ends with it. Where the start of a process is what is
tested, start a real one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from select import select
from types import SimpleNamespace
from typing import Any, Self

from tests.home import run_home

ROOT = Path(__file__).parents[1]
COMMAND = """
import sys
from memoryhub.cli import main
from memoryhub.ops import hub_databases
from memoryhub.transfer.moving import switching
from tests import forks
switching.subprocess = hub_databases.subprocess = forks.SUBPROCESS
sys.exit(main(["memory-hub", *sys.argv[1:]]))
"""
_MODULE = "import runpy, sys; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
# The folder of the sockets, for forks that start others
_FOLDER_VARIABLE = "MEMORY_HUB_TEST_FORKS"
_LARGEST = 1 << 17
DEADLINE_SECONDS = 300.0


class Fork:
    """A Python program in a process of its own, with what tests use of ``subprocess.Popen``."""

    def __init__(
        self,
        program: str,
        *arguments: str,
        environment: Mapping[str, str] = {},
        cwd: Path = ROOT,
        text: bool = True,
        stdout: Any = subprocess.PIPE,
    ) -> None:
        variables = {**os.environ, **environment, _FOLDER_VARIABLE: _folder(os.getpid())}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the pipes
        given, write_end = os.pipe()
        read_end, taken = os.pipe() if stdout == subprocess.PIPE else (-1, os.dup(stdout.fileno()))
        status, reported = os.pipe()
        task = {"program": program, "arguments": arguments, "environment": variables, "folder": str(cwd)}
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
            control.connect(parent_of_forks(_engine(variables)))
            socket.send_fds(control, [json.dumps(task).encode()], [given, taken, self._errors.fileno(), reported])
        for descriptor in (given, taken, reported):
            os.close(descriptor)
        mode = "" if text else "b"
        self.stdin: Any = os.fdopen(write_end, f"w{mode}")
        self.stdout: Any = os.fdopen(read_end, f"r{mode}") if read_end >= 0 else None
        self._status = os.fdopen(status, "rb", buffering=0)  # or what was read ahead would hide from select
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def communicate(self, text: Any = None) -> tuple[Any, str]:
        """Write to the process, wait for its end, and return what it wrote."""
        with contextlib.suppress(BrokenPipeError):
            if text:
                self.stdin.write(text)
            self.stdin.close()
        output = self.stdout.read() if self.stdout else ""
        self.wait()
        self.close_pipes()
        return output, self.errors

    def wait(self) -> int:
        if self.returncode is None:
            assert select([self._status], [], [], DEADLINE_SECONDS)[0], "the process goes on"
            self.returncode = int(self._status.readline())
            self._errors.seek(0)
            self.errors = self._errors.read().decode()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self.wait() if self.returncode is None and select([self._status], [], [], 0)[0] else self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close_pipes(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        for file in filter(None, (self.stdout, self._status, self._errors)):
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        if self.stdout and not self.stdout.closed:
            self.stdout.read()
        self.wait()
        self.close_pipes()


def fork_module(command: Sequence[str], *, env: Mapping[str, str], **_: Any) -> Fork:
    """Fork a module as ``subprocess.Popen`` would start it: ``python -m MODULE ARGUMENTS``."""
    return Fork(_MODULE, *command[command.index("-m") + 1 :], environment=env, text=False)


def _run_module(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    process = fork_module(command, **options)
    printed, errors = process.communicate(options["input"])
    return subprocess.CompletedProcess(command, process.wait(), printed, errors.encode())


# For modules of the hub that start others of it, instead of the standard library's
SUBPROCESS = SimpleNamespace(Popen=fork_module, run=_run_module, PIPE=subprocess.PIPE)


def run_program(program: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run a program, and return its exit code, what it printed, and its errors."""
    process = Fork(program, *arguments, environment=variables)
    printed, errors = process.communicate()
    return process.wait(), printed, errors


def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run a command of the hub, as ``run_program`` does."""
    return run_program(COMMAND, *arguments, **variables)


def run_module(*words: str, **variables: str) -> tuple[int, str, str]:
    return run_program(_MODULE, *words, **variables)


def _engine(variables: Mapping[str, str]) -> str:
    from memoryhub import env

    named = variables.get(env.DATABASE_VARIABLE) or env.configured_database_url()
    return "sqlite" if named in ("", env.FILES) else "postgresql"


@cache
def _folder(_process: int) -> str:
    return os.environ.get(_FOLDER_VARIABLE) or tempfile.mkdtemp(prefix="forks-", dir=run_home())


@cache
def _started(engine: str, folder: str) -> str:
    from memoryhub import env

    path = f"{folder}/{engine}"
    if _FOLDER_VARIABLE in os.environ:
        return path  # a fork, which would take its parent along when it is killed
    url = {"sqlite": env.FILES, "postgresql": "postgresql://hub@127.0.0.1:1/none"}[engine]
    changes = {env.DATABASE_VARIABLE: url, "MEMORY_HUB_HOME": f"{folder}/home", _FOLDER_VARIABLE: folder}
    ready, reported = os.pipe()
    lives, _kept_open = os.pipe()
    files = [(os.POSIX_SPAWN_DUP2, lives, 0), (os.POSIX_SPAWN_DUP2, reported, 1)]
    command = [sys.executable, "-m", "tests.forks", path]
    os.posix_spawn(sys.executable, command, {**os.environ, **changes, "PYTHONPATH": str(ROOT)}, file_actions=files)
    os.close(lives)
    os.close(reported)
    with os.fdopen(ready) as waiting:
        assert waiting.read() == "ready", "the process that forks others did not start"
    return path


def parent_of_forks(engine: str) -> str:
    """Return the path of the socket of the process that forks others, started when it is first needed."""
    return _started(engine, _folder(os.getpid()))


def start_parents() -> None:
    """Start the parents for both databases, for forks that start others: they start no parent themselves."""
    for engine in ("sqlite", "postgresql"):
        parent_of_forks(engine)


def _serve(path: str) -> None:
    """Fork a process for each program that is sent, until standard input ends."""
    import gc

    _load()
    gc.freeze()  # a collection in a fork would copy every page of its parent
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(64)
        os.write(1, b"ready")
        os.dup2(2, 1)
        while sys.stdin not in select([listener, sys.stdin], [], [])[0]:
            control, _ = listener.accept()
            with control:
                message, descriptors, _, _ = socket.recv_fds(control, _LARGEST, 4)
            if os.fork() == 0:
                listener.close()
                _watch(json.loads(message), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


def _watch(task: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Fork the process of a program, and report its number and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    reported = descriptors[3]
    child = os.fork()
    if child == 0:
        os.close(reported)
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.setsid()
        _run(**task)
    for descriptor in (0, 1, 2, *descriptors[:3]):
        os.close(descriptor)
    os.write(reported, b"%d\n" % child)
    _, status = os.waitpid(child, 0)
    os.write(reported, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _run(program: str, arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
    import importlib
    import random

    from django.conf import settings
    from django.db import connections

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    random.seed()
    sys.argv = ["-c", *arguments]
    databases = importlib.reload(importlib.import_module("memoryhub.settings_store")).DATABASES
    settings.DATABASES = databases
    connections.settings = connections.configure_settings(databases)
    for connection in connections.all(initialized_only=True):
        del connections[connection.alias]
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    sys.exit()


def _load() -> None:
    """Import what programs would, one after the other, import by themselves."""
    import importlib
    import pkgutil

    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
    django.setup()
    for package in ("memoryhub.management.commands", "memoryhub.transfer.moving", "governance.redaction"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    # Else each would import them when it needs them
    for name in (
        "_strptime",
        "jsonschema",
        "django.db.models.sql.compiler",
        "memories.services",
        "memoryhub.ops.doctor.service",
    ):
        importlib.import_module(name)


if __name__ == "__main__":
    _serve(sys.argv[1])
