"""The tables and triggers of a store: its template, and whether a store still has them."""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from sqlite3 import DatabaseError

from memoryhub import env
from memoryhub.core.backends.base import ERASES, IMMUTABLE, REDACTS
from memoryhub.core.backends.sqlite.files import connect_immutable, connected, file_lock
from memoryhub.core.disk import sync
from memoryhub.core.stores import schema
from memoryhub.core.stores.schema import require_sql

META_TABLE = "CREATE TABLE IF NOT EXISTS store_meta (key text PRIMARY KEY, value text NOT NULL) WITHOUT ROWID"

# Name and condition of each trigger; all abort.
LOG_TRIGGERS = {
    "raw_events_no_delete": "BEFORE DELETE ON raw_events",
    "raw_events_no_change": f"BEFORE UPDATE ON raw_events WHEN NOT (({ERASES}) OR coalesce({REDACTS}, 0)) OR "
    + " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in IMMUTABLE),
    "raw_events_no_gap": "BEFORE INSERT ON raw_events WHEN NEW.position IS NOT "
    "(SELECT coalesce(max(position), 0) + 1 FROM raw_events)",
}

require_sql(
    "core",
    META_TABLE,
    "DROP TRIGGER IF EXISTS raw_events_no_change",
    *(
        f"CREATE TRIGGER IF NOT EXISTS {name} {when} BEGIN SELECT RAISE(ABORT, 'the event log is append-only'); END"
        for name, when in LOG_TRIGGERS.items()
    ),
)


logger = logging.getLogger(__name__)


def copy_template(target: Path) -> None:
    """Create an empty store at ``target`` that only this process uses."""
    shutil.copyfile(template_path(), target)


def template_file() -> Path:
    """Return the path of this version's template, which may be missing or damaged."""
    return env.home() / "templates" / f"{schema.fingerprint()[:16]}.db"


def template_problem(path: Path) -> str:
    """Return why the template of new stores cannot be used, "" if it can or does not exist."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ""
    return _template_problem(path, (found.st_ino, found.st_size, found.st_mtime_ns))


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
        with closing(connect_immutable(path)) as connection:
            found = [" ".join(text.split()) for (text,) in connection.execute("PRAGMA integrity_check(3)")]
            if found != ["ok"]:
                return "; ".join(found)[:500]
            if connection.execute("SELECT 1 FROM raw_events").fetchone():
                return "its log is not empty"
            marks = connection.execute("SELECT value FROM store_meta WHERE key = 'fingerprint'").fetchall()
            return "" if marks == [(schema.fingerprint(),)] else "it is of another version"
    except DatabaseError as error:
        return str(error)


def _build_template(path: Path) -> None:
    draft = path.with_suffix(".draft")
    for end in ("-wal", "-shm", ""):  # left by a killed process: SQLite would apply its WAL to the new file
        draft.with_name(draft.name + end).unlink(missing_ok=True)
    with connected(draft) as connection:
        schema.migrate(connection)
        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sync(draft)
    draft.rename(path)
