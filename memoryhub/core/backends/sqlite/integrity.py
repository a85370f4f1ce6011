from __future__ import annotations

from contextlib import closing
from functools import lru_cache
from pathlib import Path

from django.db import DatabaseError

from memoryhub.core.backends.sqlite.files import connect_immutable, path_of
from memoryhub.core.backends.sqlite.structure import LOG_TRIGGERS, template_path
from memoryhub.core.stores import rows
from memoryhub.core.stores.store_id import StoreId
from memoryhub.core.text import counted

_SHOWN = 3
_OBJECTS = (
    "SELECT type, name, CASE type WHEN 'trigger' THEN sql END FROM sqlite_master WHERE substr(name, 1, 7) <> 'sqlite_'"
)
_MIGRATIONS = "SELECT app, name FROM django_migrations"
# Not every SQLite has FTS5; a missing full-text index is a finding of its own.
_OPTIONAL = "search_fts"
# Offset in the header: 1 for a rollback journal, 2 for a WAL; a greater one makes a database read-only.
_WRITE_VERSION = 18


def damage() -> str:
    try:
        for (table,) in rows.fetch("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"):
            rows.fetch(f'SELECT rowid FROM "{table}" LIMIT 1')  # otherwise FTS5 checks against its cached structure
        found = [" ".join(str(text).split()) for (text,) in rows.fetch(f"PRAGMA integrity_check({_SHOWN})")]
    except DatabaseError as error:
        found = [str(error)]
    return "" if found == ["ok"] else f"the file is damaged: {'; '.join(found)[:500]}"


def header_problem(store: StoreId) -> str:
    with path_of(store).open("rb") as file:
        version = file.read(_WRITE_VERSION + 1)[_WRITE_VERSION:]
    return "" if version in (b"\x01", b"\x02") else "the file is damaged: its header marks it as read-only"


def missing_log_triggers() -> list[str]:
    present = {name for (name,) in rows.fetch("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
    return sorted(set(LOG_TRIGGERS) - present)


def schema_problem() -> str:
    template = template_path()
    expected, present = _expected(template), _known(rows.fetch(_OBJECTS))
    missing = [key for key in expected if key not in present and key[1] not in LOG_TRIGGERS]
    has_migrations = ("table", "django_migrations") in present
    unlisted = len(_applied(template).difference(rows.fetch(_MIGRATIONS))) if has_migrations else 0
    changed = [key for key, sql in expected.items() if present.get(key, sql) != sql]
    added = [key for key in present if key not in expected]
    found = [
        *(f"{kind} {name} is missing" for kind, name in missing),
        *(f"{kind} {name} was changed" for kind, name in changed),
        *(f"{kind} {name} was added" for kind, name in added),
        *([f"django_migrations lacks {counted(unlisted, 'migration')}"] if unlisted else ()),
    ]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"the store's schema was changed: {', '.join(found[:_SHOWN])}{more}" if found else ""


_Objects = dict[tuple[str, str], str | None]


@lru_cache(maxsize=4)
def _expected(template: Path) -> _Objects:
    with closing(connect_immutable(template)) as connection:
        return _known(connection.execute(_OBJECTS).fetchall())


@lru_cache(maxsize=4)
def _applied(template: Path) -> frozenset[tuple[str, str]]:
    with closing(connect_immutable(template)) as connection:
        return frozenset(connection.execute(_MIGRATIONS).fetchall())


def _known(objects: list[tuple[str, str, str | None]]) -> _Objects:
    return {(kind, name): sql for kind, name, sql in objects if not name.startswith(_OPTIONAL)}
