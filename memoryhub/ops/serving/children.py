"""The server's child processes."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading

from memoryhub.core.module_processes import module_command, module_environment

logger = logging.getLogger(__name__)

_RESTART_SECONDS = 5.0

# Modules to run
WORKER = "memoryhub.ops.serving.worker"
EMBEDDING = "memoryhub.ops.serving.embedding"


# Keeps one module running, in a process group of its own. The child ends when its standard input does, so it never
# outlives the server.
class Child:
    def __init__(self, module: str = WORKER) -> None:
        self._module = module
        self._stopping = threading.Event()
        self._process = self._start()
        self._watcher = threading.Thread(target=self._watch, name="child-watch", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603
            module_command(self._module), stdin=subprocess.PIPE, start_new_session=True, env=module_environment()
        )

    def _watch(self) -> None:
        while True:
            code = self._process.wait()
            self._end_group()
            if self._stopping.is_set():
                return
            logger.error("%s ended with code %s; restarting in %g s", self._module, code, _RESTART_SECONDS)
            if self._stopping.wait(_RESTART_SECONDS):
                return
            self._process = self._start()

    def stop(self, *, grace: float) -> None:
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
