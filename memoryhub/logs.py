"""Logging: one line a record on standard error, in every process."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any


def configure(_settings: dict[str, Any]) -> None:
    """Send records to standard error; ``MEMORY_HUB_LOG`` sets the level (WARNING by default)."""
    level = os.environ.get("MEMORY_HUB_LOG", "WARNING").upper()
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
