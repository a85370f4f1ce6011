"""The tables and triggers of a store: its template, and whether a store still has them."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.db import DatabaseError

from memoryhub import env
from memoryhub.core.backends.base import ERASES, IMMUTABLE, REDACTS
from memoryhub.core.backends.differing import schema_changes
from memoryhub.core.backends.sqlite.files import connected, file_lock, open_immutable, path_of
from memoryhub.core.disk import sync
from memoryhub.core.stores import rows, schema
from memoryhub.core.stores.schema import require_sql
from memoryhub.core.stores.store_id import StoreId
from memoryhub.core.text import counted

logger = logging.getLogger(__name__)

_FINDINGS = 3

META_TABLE = "CREATE TABLE IF NOT EXISTS store_meta (key text PRIMARY KEY, value text NOT NULL) WITHOUT ROWID"

# Name and condition of each trigger; all abort.
LOG_TRIGGERS = {
    "raw_events_no_delete": "BEFORE DELETE ON raw_events",
    "raw_events_no_change": f"BEFORE UPDATE ON raw_events WHEN NOT (({ERASES}) OR coalesce({REDACTS}, 0)) OR "
    + " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in IMMUTABLE),
    "raw_events_no_gap": "BEFORE INSERT ON raw_events WHEN NEW.position IS NOT "
    "(SELECT coalesce(max(position), 0) + 1 FROM raw_events)",
}


_OBJECTS = (
    "SELECT type, name, CASE type WHEN 'trigger' THEN sql END FROM sqlite_master WHERE substr(name, 1, 7) <> 'sqlite_'"
)
_MIGRATIONS = "SELECT app, name FROM django_migrations"
# Not every SQLite has FTS5; a missing full-text index is a finding of its own.
_OPTIONAL = "search_fts"
# Offset in the header: 1 for a rollback journal, 2 for a WAL; a greater one makes a database read-only.
_WRITE_VERSION = 18
# SQL by type and name
Objects = dict[tuple[str, str], str | None]


def require_structure() -> None:
    triggers = [
        f"CREATE TRIGGER IF NOT EXISTS {name} {when} BEGIN SELECT RAISE(ABORT, 'the event log is append-only'); END"
        for name, when in LOG_TRIGGERS.items()
    ]
    require_sql("core", META_TABLE, "DROP TRIGGER IF EXISTS raw_events_no_change", *triggers)


def template_file() -> Path:
    """Return the path of this version's template, which may be missing or damaged."""
    return env.home() / "templates" / f"{schema.fingerprint()[:16]}.db"


def template_problem(path: Path) -> str:
    """Return why the template of new stores cannot be used, "" if it can or does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ""
    return _template_problem(path, (status.st_ino, status.st_size, status.st_mtime_ns))


def template_path() -> Path:
    """Return the path of an empty store of this version; create it if it is missing or damaged."""
    env.prepare_home()
    path = template_file()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not _is_sound(path):
        with file_lock(path.with_name("lock"), timeout=60):
            if not _is_sound(path):
                if problem := template_problem(path):
                    logger.warning("the template of new stores is rebuilt: %s", problem)
                _build_template(path)
    return path


def _is_sound(template: Path) -> bool:
    return template.exists() and not template_problem(template)


@lru_cache(maxsize=4)
def _template_problem(path: Path, _stamp: tuple[int, int, int]) -> str:
    try:
        with closing(open_immutable(path)) as connection:
            findings = _sentences(connection.execute(f"PRAGMA integrity_check({_FINDINGS})").fetchall())
            if findings != "ok":
                return findings
            if connection.execute("SELECT 1 FROM raw_events").fetchone():
                return "its log is not empty"
            marks = connection.execute("SELECT value FROM store_meta WHERE key = 'fingerprint'").fetchall()
            return "" if marks == [(schema.fingerprint(),)] else "it is of another version"
    except sqlite3.DatabaseError as error:
        return str(error)


def _sentences(findings: list[tuple[object, ...]]) -> str:
    return "; ".join(" ".join(str(text).split()) for (text,) in findings)[:500]


def _build_template(path: Path) -> None:
    draft = path.with_suffix(".draft")
    for suffix in ("-wal", "-shm", ""):  # left by a killed process: SQLite would apply its WAL to the new file
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)
    with connected(draft) as connection:
        schema.migrate(connection)
        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sync(draft)
    draft.rename(path)


def damage() -> str:
    try:
        for table in rows.column("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"):
            rows.fetch(f'SELECT rowid FROM "{table}" LIMIT 1')  # otherwise FTS5 checks against its cached structure
        findings = _sentences(rows.fetch(f"PRAGMA integrity_check({_FINDINGS})"))
    except DatabaseError as error:
        findings = str(error)[:500]
    return "" if findings == "ok" else f"the file is damaged: {findings}"


def header_problem(store: StoreId) -> str:
    with path_of(store).open("rb") as file:
        version = file.read(_WRITE_VERSION + 1)[_WRITE_VERSION:]
    return "" if version in (b"\x01", b"\x02") else "the file is damaged: its header marks it as read-only"


def missing_log_triggers() -> list[str]:
    return sorted(set(LOG_TRIGGERS).difference(rows.column("SELECT name FROM sqlite_master WHERE type = 'trigger'")))


def schema_problem() -> str:
    expected, migrations = _template_structure(template_path())
    present = _by_name(rows.fetch(_OBJECTS))
    missing = [key for key in expected if key not in present and key[1] not in LOG_TRIGGERS]
    changed = [key for key, sql in expected.items() if present.get(key, sql) != sql]
    added = [key for key in present if key not in expected]
    changes = [f"{kind} {name} is missing" for kind, name in missing]
    changes += [f"{kind} {name} was changed" for kind, name in changed]
    changes += [f"{kind} {name} was added" for kind, name in added]
    if ("table", "django_migrations") in present:
        unlisted = migrations.difference(rows.fetch(_MIGRATIONS))
        if unlisted:
            changes.append(f"django_migrations lacks {counted(len(unlisted), 'migration')}")
    return schema_changes(changes)


@lru_cache(maxsize=4)
def _template_structure(template: Path) -> tuple[Objects, frozenset[tuple[str, str]]]:
    with closing(open_immutable(template)) as connection:
        objects = _by_name(connection.execute(_OBJECTS).fetchall())
        return objects, frozenset(connection.execute(_MIGRATIONS).fetchall())


def _by_name(objects: list[tuple[Any, ...]]) -> Objects:
    return {(kind, name): sql for kind, name, sql in objects if not name.startswith(_OPTIONAL)}
