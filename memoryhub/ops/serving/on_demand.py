"""A hub that a client started: it logs to a bounded file, and ends when it has been idle for long enough."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

import memoryhub
from memoryhub import env
from memoryhub.core.clients import connected_clients

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


class _Handler(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as logging names it
        """Drop the line: logging would report the error on standard error, which ends here again."""


def log_to_file() -> None:
    """Send standard output and error of this process and its children to ``serve.log`` and one older file.

    Both have at most ``MAX_LOG_BYTES``. Children only have a pipe, so that one process alone renames the file.
    """
    path = env.prepare_home() / LOG_FILE
    handler = _Handler(path, maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8", errors="replace")
    reader, writer = os.pipe()
    for number in (1, 2):
        os.dup2(writer, number)
    os.close(writer)
    threading.Thread(target=_copy, args=[reader, handler], name="log-copy", daemon=True).start()


def log_lines() -> list[str]:
    """Return the lines of ``serve.log``, which has at most ``MAX_LOG_BYTES``; none if it does not exist."""
    try:
        return (env.home() / LOG_FILE).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _copy(reader: int, handler: RotatingFileHandler) -> None:
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
