"""A real `serve` process on a free port, with a home folder of its own."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from itertools import count
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from memoryhub.env import DATABASE_FILE
from tests.databases import remove_home, variables_of
from tests.home import RUN_HOME_VARIABLE, UNMEASURED, run_home
from tests.server_processes import children_of, is_alive

ROOT = Path(__file__).parent.parent.parent
# How long what must come is waited for; it costs nothing where it comes early.
DEADLINE_SECONDS = 120.0
START_SECONDS = 120.0
T = TypeVar("T")
_PRIORITIES = count(1)
_MIGRATE = """
import django, os
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
django.setup()
from memoryhub.ops.hub_databases import prepare_databases
prepare_databases()
"""
_SHELL = """
import contextlib, io, json, sys
from memoryhub.cli import main
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main(["memory-hub", *json.loads(line)])
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, said.getvalue()]), flush=True)
"""


def poll(condition: Callable[[], Any], *, what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)
    return value


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    def __init__(self, home: Path, *options: str, program: str = "", process: Any = None) -> None:
        self.home = home
        # The address at which a proxy reaches it, where it has one of its own for that
        self.upstream = ""
        self.output: list[str] = []
        self.process = process or command("serve", "--port", "0", *options, home=home, program=program)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.output.append(line)

    def wait_until_ready(self) -> Server:
        def ready() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"serve ended with {self.process.returncode}: {self.text}")
            return "signin/" in self.text

        poll(ready, seconds=START_SECONDS, what="the sign-in link")
        return self

    @property
    def text(self) -> str:
        return "".join(self.output)

    @property
    def link(self) -> str:
        return re.search(r"https?://\S+/signin/\S+", self.text)[0]  # type: ignore[index]

    @property
    def address(self) -> str:
        return re.search(r" at (http://\S+)/$", self.text, re.MULTILINE)[1]  # type: ignore[index]

    @property
    def place(self) -> tuple[str, int]:
        parts = urlsplit(self.address)
        return parts.hostname or "", parts.port or 0

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection(*self.place, timeout=DEADLINE_SECONDS)
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if content is not None else {}
        with contextlib.closing(connection):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, content, {**sent, **named})
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())

    def api(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return self.request(method, f"/api/v1/{path}", body, Authorization=f"Bearer {self.token}", **headers)

    def worker_pids(self) -> list[int]:
        groups = children_of(self.process.pid)
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        return [pid for pid in alive(pids) if _group(pid) in groups]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.end()
        assert self.process.stdout
        self.process.stdout.close()


def command(
    *arguments: str, home: Path, program: str = "", stdin: int | None = None, folder: Path | None = None
) -> subprocess.Popen[str]:
    measured = UNMEASURED if program else {}  # some programs leave coverage no room to write what it measured
    environment = {**os.environ, **measured, **variables_of(home), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, *(["-c", program] if program else [str(ROOT / "manage.py")]), *arguments],
        cwd=folder or (ROOT if program else None),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def run(*arguments: str, home: Path) -> tuple[int, str]:
    with command(*arguments, home=home) as process:
        output, _ = process.communicate(timeout=START_SECONDS)
        return process.returncode, output


class Shell:
    """A process that runs one command after another, as one for each would: to start takes the most of a command."""

    def __init__(self, home: Path, *, folder: Path | None = None) -> None:
        self._process = command(home=home, program=_SHELL, stdin=subprocess.PIPE, folder=folder)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Return a command's exit code, and all that it said on both streams."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line.startswith("["), line + self._process.stdout.read()
        code, said = json.loads(line)
        return code, said

    def close(self) -> None:
        with self._process as process:
            process.communicate(timeout=DEADLINE_SECONDS)


def until_this_process_ends(context: AbstractContextManager[T]) -> T:
    """Enter it; leave it when this process ends, the last that was entered first."""
    entered = context.__enter__()
    Finalize(None, context.__exit__, args=(None, None, None), exitpriority=next(_PRIORITIES))
    return entered


@contextlib.contextmanager
def temporary_home(*, fresh: bool = False) -> Iterator[Path]:
    """A home that does not exist yet if ``fresh``, else one whose databases are migrated already."""
    folder = Path(tempfile.mkdtemp(prefix="memory-hub-serve-", dir=os.environ.get(RUN_HOME_VARIABLE)))
    try:
        if not fresh:
            shutil.copytree(migrated_home(), folder / "home", ignore=shutil.ignore_patterns(DATABASE_FILE))
        yield folder / "home"
    finally:
        remove_home(folder / "home")
        shutil.rmtree(folder, ignore_errors=True)


@cache
def migrated_home() -> Path:
    """The home that others are copies of, made once for all processes of the run."""
    home = run_home() / "migrated"
    with (run_home() / "migrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            draft = home.with_suffix(".draft")
            with command(home=draft, program=_MIGRATE) as process:
                output, _ = process.communicate(timeout=START_SECONDS)
            assert process.returncode == 0, output
            draft.rename(home)
    return home


@contextlib.contextmanager
def serving(*options: str, home: Path | None = None, program: str = "") -> Iterator[Server]:
    with contextlib.ExitStack() as stack:
        server = Server(home or stack.enter_context(temporary_home()), *options, program=program)
        try:
            yield server.wait_until_ready()
        finally:
            server.close()


def _group(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_alive(pid)]
