from __future__ import annotations

import importlib
import sqlite3
import sys

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
