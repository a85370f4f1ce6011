"""The server's child processes: started, watched and ended by it, and never left behind by it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from django.core.management import call_command
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from memoryhub import env
from memoryhub.core.stores import files

logger = logging.getLogger(__name__)

_RESTART_SECONDS = 5.0
_ROOT = Path(__file__).parents[3]


WORKER = "memoryhub.ops.serving.work"
EMBEDDING = "memoryhub.ops.serving.embedding"


class Worker:
    """Keeps one module running. It lives in a process group of its own, and holds the other end of our pipe."""

    def __init__(self, module: str = WORKER) -> None:
        self._module = module
        self._stopping = threading.Event()
        self._process = self._start()
        self._watcher = threading.Thread(target=self._watch, name="worker-watch", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """Its process group."""
        return self._process.pid

    def _start(self) -> subprocess.Popen[bytes]:
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", self._module]
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, env=environment)  # noqa: S603

    def _watch(self) -> None:
        while True:
            code = self._process.wait()
            self._end_group()
            if self._stopping.is_set():
                return
            logger.error("%s ended with code %s; it starts again in %g s", self._module, code, _RESTART_SECONDS)
            if self._stopping.wait(_RESTART_SECONDS):
                return
            self._process = self._start()

    def stop(self, *, grace: float) -> None:
        """Ask it to end, and end it after ``grace`` seconds if it has not."""
        self._stopping.set()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        self._end_group()
        self._watcher.join(1)
        if self._process.stdin:
            self._process.stdin.close()

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


_FILES = {"default": "hub.db", "jobs": "jobs.db"}


def prepare_databases() -> list[Path]:
    """Migrate what is behind, and return the backups that were made before; nothing to do takes some 50 ms."""
    env.prepare_home()
    return [backup for alias, name in _FILES.items() if (backup := _prepare(alias, name))]


def _prepare(alias: str, name: str) -> Path | None:
    executor = MigrationExecutor(connections[alias])
    behind = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if not behind:
        return None
    used = bool(executor.loader.applied_migrations)
    backup = files.back_up(env.home() / name, reason=f"{Path(name).stem}-before-upgrade") if used else None
    call_command("migrate", database=alias, interactive=False, verbosity=0)
    return backup
