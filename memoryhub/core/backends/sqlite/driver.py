"""Which SQLite the hub runs on."""

from __future__ import annotations

import importlib
import sqlite3
import sys

SAFE_VERSION = (3, 51, 3)
"""Older ones can corrupt a WAL when several processes write and check-point (https://sqlite.org/wal.html)."""


def install() -> None:
    """Put ``pysqlite3`` in the place of ``sqlite3`` where the interpreter's own SQLite is too old.

    Call it before Django's backend is imported. Without ``pysqlite3`` the interpreter's own stays in use;
    the version is in the statistics of every store.
    """
    if sqlite3.sqlite_version_info >= SAFE_VERSION:
        return
    try:
        newer = importlib.import_module("pysqlite3")
    except ImportError:
        return
    if newer.sqlite_version_info > sqlite3.sqlite_version_info:
        sys.modules["sqlite3"] = newer
        sys.modules["sqlite3.dbapi2"] = newer.dbapi2
