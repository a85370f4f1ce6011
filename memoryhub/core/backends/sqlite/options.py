"""How hub databases are opened. Imports no Django, because settings use it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

BUSY_TIMEOUT_SECONDS = 5.0
JOURNAL_SIZE_LIMIT = 64 * 1024 * 1024
# Of all connections of a process together. The hub has one for each thread and store, and each may cache 4 MB.
_HEAP_LIMIT = 48 * 1024 * 1024

# FULL, because NORMAL loses acknowledged writes in a power cut; recursive triggers, so that REPLACE fires ours.
PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    f"PRAGMA journal_size_limit={JOURNAL_SIZE_LIMIT}",
    "PRAGMA foreign_keys=ON",
    "PRAGMA recursive_triggers=ON",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA cache_size=-4000",
    f"PRAGMA soft_heap_limit={_HEAP_LIMIT}",
)


def connection_settings(path: str, *, create: bool) -> dict[str, Any]:
    """Return the ``DATABASES`` entry of a file; without ``create`` a missing file is an error."""
    mode = "rwc" if create else "rw"
    return {
        "ENGINE": "memoryhub.core.backends.sqlite",
        "NAME": f"file:{quote(path)}?mode={mode}",
        "OPTIONS": {"timeout": BUSY_TIMEOUT_SECONDS, "transaction_mode": "IMMEDIATE"},
        "CONN_MAX_AGE": None,
    }
