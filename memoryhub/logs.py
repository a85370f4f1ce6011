"""Logging: one line for each record on standard error, in every process; only a fault of the hub has a traceback."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from memoryhub.core.text import flat, printable

_FOREIGN_HOST = "refused a request for the host %r: this hub answers under its own address only"
_SHOWN_OF_HOST = 100


class OneLine(logging.Formatter):
    """A record's own text on one line, so that what it quotes cannot pass for another record or move the cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the record's line."""
        return printable(flat(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the traceback, of several lines."""
        return printable(super().formatException(ei))


def configure(_settings: dict[str, Any]) -> None:
    """Send records to standard error; ``MEMORY_HUB_LOG`` sets the level (WARNING by default)."""
    level = os.environ.get("MEMORY_HUB_LOG", "WARNING").upper()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_shorten_refusals)
    logging.basicConfig(level=level, handlers=[handler])


def _shorten_refusals(record: logging.LogRecord) -> bool:
    """Leave one sentence of a request that Django refuses: it is the caller's fault, and a traceback helps nobody."""
    if record.name.startswith("django.security."):
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        if record.name.endswith(".DisallowedHost"):
            host = record.__dict__["request"].META.get("HTTP_HOST", "")
            record.msg, record.args = _FOREIGN_HOST, (host[:_SHOWN_OF_HOST],)
    return True
