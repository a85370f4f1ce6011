from __future__ import annotations

import logging
import os
import re
import sys
from typing import Any, TextIO

from memoryhub.core.text import flat, printable

_FOREIGN_HOST = "refused a request for the host %r: this hub answers only at its own address"
_SHOWN_OF_HOST = 100
# How much of a path, or another value of a request, is logged
_SHOWN_OF_VALUE = 200
# A reader of the log must not be able to sign in.
_LINK = re.compile(r"(/signin/)[^\s?#'\"]+")


# Text quoted in a record must not look like another record or move the cursor
class OneLine(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return _LINK.sub(r"\1…", printable(flat(super().formatMessage(record))))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _LINK.sub(r"\1…", printable(super().formatException(ei)))


# ``MEMORY_HUB_LOG`` sets the level; default: WARNING
def configure(_settings: dict[str, Any]) -> None:
    level = os.environ.get("MEMORY_HUB_LOG", "WARNING").upper()
    logging.basicConfig(level=level, handlers=[line_handler(sys.stderr)])


def line_handler(stream: TextIO) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_shorten_refusals)
    return handler


# A request that Django refuses is the caller's mistake, so one line without a traceback is enough
def _shorten_refusals(record: logging.LogRecord) -> bool:
    if record.name.startswith("django.security."):
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        if record.name.endswith(".DisallowedHost"):
            host = record.__dict__["request"].META.get("HTTP_HOST", "")
            record.msg, record.args = _FOREIGN_HOST, (host[:_SHOWN_OF_HOST],)
    if record.name.startswith("django.") and isinstance(record.args, tuple):
        record.args = tuple(_shortened(value) for value in record.args)
    return True


def _shortened(value: object) -> object:
    is_long = isinstance(value, str) and len(value) > _SHOWN_OF_VALUE
    return f"{str(value)[:_SHOWN_OF_VALUE]}…" if is_long else value
