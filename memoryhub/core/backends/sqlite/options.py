"""How hub databases are opened. Imports no Django, because settings use it."""

from __future__ import annotations

import importlib
import sqlite3
import sys
from typing import Any
from urllib.parse import quote

BUSY_TIMEOUT_SECONDS = 5.0
JOURNAL_SIZE_LIMIT = 64 * 1024 * 1024
# The limit of all connections of a process together. The hub has one for each thread and store, with 4 MB of cache.
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


# Older ones can corrupt a WAL when several processes write and checkpoint (https://sqlite.org/wal.html).
SAFE_VERSION = (3, 51, 3)


def install() -> None:
    """Replace ``sqlite3`` by ``pysqlite3`` if the interpreter's SQLite is too old."""
    # Must run before Django's backend is imported. Without pysqlite3 the old version stays in use; it is shown in the
    # statistics of every store.
    if sqlite3.sqlite_version_info >= SAFE_VERSION:
        return
    try:
        newer = importlib.import_module("pysqlite3")
    except ImportError:
        return
    if newer.sqlite_version_info > sqlite3.sqlite_version_info:
        sys.modules["sqlite3"] = newer
        sys.modules["sqlite3.dbapi2"] = newer.dbapi2
