"""The hub's process: the lock of its home, its log file, its idle end, its children and its memory."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path

import memoryhub
from memoryhub import __version__, env
from memoryhub.core import clock
from memoryhub.core.autostart import module_command, module_environment
from memoryhub.core.clients import connected_clients
from memoryhub.core.errors import ConflictError, Locked
from memoryhub.core.file_locks import lock, try_share_lock

FILE_NAME = env.SERVE_LOCK
_LOCK_SECONDS = 0.1
# A hub finishes what it has begun, and ends its workers
_END_SECONDS = 30.0
BY_HAND, ON_DEMAND, SERVICE = "by hand", "on demand", "service"
_BY_HAND = "end it with `memory-hub stop`, and start it again with `memory-hub serve`"
_RESTARTS = {
    ON_DEMAND: "`memory-hub serve` takes its place",
    SERVICE: "`memory-hub service restart` starts the new one",
}


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    address: str
    # ISO 8601 in UTC, and one of the three below; empty for a hub of an earlier version.
    since: str = ""
    started: str = ""
    # What people use, if the hub is reached from other machines
    public_url: str = ""
    # Empty for a hub of a version that did not write it
    version: str = ""

    @property
    def upgrade(self) -> str:
        """What to do if the hub is of another version than this process, as after an upgrade; else ""."""
        return self.upgrade_to(__version__)

    def upgrade_to(self, version: str) -> str:
        """What to do if the hub is of another version than a process that uses it; else ""."""
        if self.version == version:
            return ""
        is_version = f"of version {self.version}" if self.version else "of an earlier version"
        return f"the running hub is {is_version}, and this is {version}; {_RESTARTS.get(self.started, _BY_HAND)}"


def _lock_path() -> Path:
    return env.home() / FILE_NAME


@contextmanager
def hold_home(*, started: str) -> Iterator[Callable[..., AbstractContextManager[None]]]:
    """Hold the lock of the home; what it yields publishes the hub's address there, until its context ends."""
    descriptor = os.open(_lock_path(), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock_home(descriptor, takes_over=started != ON_DEMAND)
        os.ftruncate(descriptor, 0)
        since = clock.to_text(clock.now())

        @contextmanager
        def publish(address: str, url: str = "") -> Iterator[None]:
            running = Running(os.getpid(), address, since, started, url, __version__)
            os.pwrite(descriptor, json.dumps(asdict(running)).encode(), 0)
            try:
                yield
            finally:
                os.ftruncate(descriptor, 0)

        yield publish
    finally:
        os.close(descriptor)


# Waits, because hooks and commands that only look also hold the lock for a moment
def _lock_home(descriptor: int, *, takes_over: bool) -> None:
    if lock(descriptor, seconds=_LOCK_SECONDS):
        return
    other = _parse_running(os.pread(descriptor, 4096, 0))
    # A hub that a client started gives way to one that a person starts.
    if takes_over and other and other.started == ON_DEMAND and _end(other, descriptor):
        return
    where = f" at {other.address} (process {other.pid})" if other else ""
    raise ConflictError(
        f"Memory Hub is already running{where}; `memory-hub stop` ends it, and `memory-hub signin` prints a link"
    )


# Returns whether it has ended; then this process has the lock
def _end(running: Running, descriptor: int) -> bool:
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(running.pid, signal.SIGTERM)
    return lock(descriptor, seconds=_END_SECONDS)


def stop_running() -> Running | None:
    """End the hub of this home, and return what ran.

    Raises:
        Locked: it goes on after half a minute.
    """
    running = find_running()
    if running is None:
        return None
    descriptor = os.open(_lock_path(), os.O_RDWR)
    try:
        if not _end(running, descriptor):
            raise Locked(f"the hub (process {running.pid}) has not ended yet; look at `memory-hub status`")
    finally:
        os.close(descriptor)
    return running


def find_running() -> Running | None:
    try:
        descriptor = os.open(_lock_path(), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        if try_share_lock(descriptor):  # shared, so that those that look take no other for a hub
            return None
        return _parse_running(os.pread(descriptor, 4096, 0))
    finally:
        os.close(descriptor)


def _parse_running(content: bytes) -> Running | None:
    try:
        fields = Running.__dataclass_fields__  # a later version may write more
        return Running(**{name: value for name, value in json.loads(content).items() if name in fields})
    except (ValueError, TypeError, AttributeError):
        return None


LOG_FILE = "serve.log"
MAX_LOG_BYTES = 1_000_000
IDLE_VARIABLE = "MEMORY_HUB_IDLE_SECONDS"
IDLE_SECONDS = 15 * 60.0

_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)

logger = logging.getLogger(__name__)


def installed_version() -> str:
    """Return the version of the installed files, which an upgrade changes; "" while they are being replaced."""
    try:
        text = Path(memoryhub.__file__).read_text("utf-8")
    except OSError:
        return ""
    match = _VERSION.search(text)
    return match[1] if match else ""


class _LogHandler(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as logging names it
        """Drop the line: logging would report the error on standard error, which ends here again."""


def log_to_file() -> None:
    """Send standard output and error of this process and its children to ``serve.log`` and one older file.

    Both have at most ``MAX_LOG_BYTES``. Children only have a pipe, so that one process alone renames the file.
    """
    path = env.prepare_home() / LOG_FILE
    handler = _LogHandler(path, maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8", errors="replace")
    reader, writer = os.pipe()
    for number in (1, 2):
        os.dup2(writer, number)
    os.close(writer)
    threading.Thread(target=_copy_lines, args=[reader, handler], name="log-copy", daemon=True).start()


def log_lines() -> list[str]:
    try:
        return (env.home() / LOG_FILE).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _copy_lines(reader: int, handler: RotatingFileHandler) -> None:
    with os.fdopen(reader, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            handler.emit(logging.makeLogRecord({"msg": "%s", "args": (line.rstrip("\n"),)}))


class Idle:
    """Ends this process when nobody has used it for ``seconds``: no request, and no client connected over stdio."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = float(os.environ.get(IDLE_VARIABLE) or IDLE_SECONDS) if seconds is None else seconds
        self._used_at = time.monotonic()

    def note_use(self) -> None:
        self._used_at = time.monotonic()

    def watch(self, stop: threading.Event) -> None:
        from memoryhub.core.background import running_tasks  # needs Django, which is not loaded when the log begins

        while not stop.wait(min(5.0, self._seconds / 4)):
            if connected_clients() or running_tasks():
                self.note_use()
            if not env.home().is_dir():
                logger.warning("the home folder is gone: ending")
            elif (version := installed_version()) not in ("", memoryhub.__version__):
                logger.warning("upgraded to version %s: ending; the next client starts it", version)
            elif time.monotonic() - self._used_at >= self._seconds:
                logger.warning("idle for %g s: ending; the next client starts the hub again", self._seconds)
            else:
                continue
            os.kill(os.getpid(), signal.SIGTERM)
            return


_RESTART_SECONDS = 5.0


class Child:
    """Runs a module as a process of its own whenever there is work for it.

    The process ends by itself when it has nothing to do, and when its standard input does, so it never outlives the
    hub. It leads a process group, which ends with it.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        wait_for_work: Callable[[threading.Event], bool],
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._command = module_command(module, *arguments)
        self._module = module
        self._pass_fds = pass_fds
        # Blocks until there is work; returns False once the event is set
        self._wait_for_work = wait_for_work
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._keep, name="child", daemon=True).start()

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        process = self._process
        return process.pid if process else None

    def _keep(self) -> None:
        while self._wait_for_work(self._stopping) and (process := self._start()):
            code = process.wait()
            with self._lock:
                self._end_group(process)
            if code and not self._stopping.is_set():
                logger.error("%s ended with code %s; restarting in %g s", self._module, code, _RESTART_SECONDS)
                self._stopping.wait(_RESTART_SECONDS)

    def _start(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if not self._stopping.is_set():
                self._process = subprocess.Popen(  # noqa: S603
                    self._command,
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                    env=module_environment(),
                    pass_fds=self._pass_fds,
                )
            return self._process

    def stop(self, *, grace: float) -> None:
        with self._lock:
            self._stopping.set()
            process = self._process
        if process:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
            with self._lock:
                self._end_group(process)

    def _end_group(self, process: subprocess.Popen[bytes]) -> None:
        if self._process is not process:
            return  # it has been ended
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin:
            process.stdin.close()
        self._process = None


# Parameters of mallopt, from glibc's malloc.h
_M_TRIM_THRESHOLD, _M_ARENA_MAX = -1, -8


# By default glibc gives most threads an arena of their own, and what is free in one is of no use to the others. Only
# glibc keeps freed memory like this, so another C library needs none of it.
def bound_allocator(*, arenas: int, kept_free_bytes: int | None = None) -> None:
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, arenas)
        if kept_free_bytes is not None:
            library.mallopt(_M_TRIM_THRESHOLD, kept_free_bytes)
