"""The job worker as a child process: started, watched and ended by the server, and never left behind by it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

logger = logging.getLogger(__name__)

_RESTART_SECONDS = 5.0
_ROOT = Path(__file__).parent.parent.parent


class Worker:
    """Keeps one worker running. It lives in a process group of its own, and holds the other end of our pipe."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._process = self._start()
        self._watcher = threading.Thread(target=self._watch, name="worker-watch", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """The process group of the worker."""
        return self._process.pid

    def _start(self) -> subprocess.Popen[bytes]:
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "memoryhub.serving.work"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, env=environment)  # noqa: S603

    def _watch(self) -> None:
        while True:
            code = self._process.wait()
            self._end_group()
            if self._stopping.is_set():
                return
            logger.error("the worker ended with code %s; it starts again in %g s", code, _RESTART_SECONDS)
            if self._stopping.wait(_RESTART_SECONDS):
                return
            self._process = self._start()

    def stop(self, *, grace: float) -> None:
        """Ask the worker to end, and end it after ``grace`` seconds if it has not."""
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
