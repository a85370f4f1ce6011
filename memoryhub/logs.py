from __future__ import annotations

import logging
import os
import sys
from typing import Any

from memoryhub.core.text import flat, printable

_FOREIGN_HOST = "refused a request for the host %r: this hub answers only at its own address"
_SHOWN_OF_HOST = 100


# Text quoted in a record must not look like another record or move the cursor
class OneLine(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(flat(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return printable(super().formatException(ei))


# ``MEMORY_HUB_LOG`` sets the level; default: WARNING
def configure(_settings: dict[str, Any]) -> None:
    level = os.environ.get("MEMORY_HUB_LOG", "WARNING").upper()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_shorten_refusals)
    logging.basicConfig(level=level, handlers=[handler])


# A request that Django refuses is the caller's mistake, so one line without a traceback is enough
def _shorten_refusals(record: logging.LogRecord) -> bool:
    if record.name.startswith("django.security."):
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        if record.name.endswith(".DisallowedHost"):
            host = record.__dict__["request"].META.get("HTTP_HOST", "")
            record.msg, record.args = _FOREIGN_HOST, (host[:_SHOWN_OF_HOST],)
    return True
