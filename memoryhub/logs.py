"""Logging: one line a record on standard error, in every process."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from memoryhub.core.wording import flat, printable


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
    logging.basicConfig(level=level, handlers=[handler])
