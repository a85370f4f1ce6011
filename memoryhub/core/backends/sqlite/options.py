"""How a hub database is opened. Imports no Django, because settings are made of it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

BUSY_TIMEOUT_SECONDS = 5.0
JOURNAL_SIZE_LIMIT = 64 * 1024 * 1024

PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    f"PRAGMA journal_size_limit={JOURNAL_SIZE_LIMIT}",
    "PRAGMA foreign_keys=ON",
    "PRAGMA recursive_triggers=ON",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA cache_size=-4000",
)
"""FULL, because NORMAL loses acknowledged writes in a power cut; recursive triggers, so that REPLACE fires ours."""


def connection_settings(path: str, *, create: bool) -> dict[str, Any]:
    """Return the ``DATABASES`` entry of one file; without ``create`` a missing file is an error, never a new one."""
    mode = "rwc" if create else "rw"
    return {
        "ENGINE": "memoryhub.core.backends.sqlite",
        "NAME": f"file:{quote(path)}?mode={mode}",
        "OPTIONS": {"timeout": BUSY_TIMEOUT_SECONDS, "transaction_mode": "IMMEDIATE"},
        "CONN_MAX_AGE": None,
    }
