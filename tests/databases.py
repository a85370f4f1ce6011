"""Databases of a test run on PostgreSQL: each home has one, as have the tests of a process for ``hub.db``."""

from __future__ import annotations

import os
import shutil
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock, skipIf
from urllib.parse import urlsplit

from tests.postgresql import SUPERUSER, URL_VARIABLE

# The URL that the run was started with, and the database that the others are copies of: it has the hub's tables.
_RUN_VARIABLE = "MEMORY_HUB_TEST_DATABASE_URL"
_TEMPLATE_VARIABLE = "MEMORY_HUB_TEST_TEMPLATE"
_numbers = count(1)
_databases: dict[Path, str] = {}


def on_postgresql() -> bool:
    return bool(os.environ.get(URL_VARIABLE))


def sqlite_only(reason: str) -> Any:
    """Skip a test or a class of tests on PostgreSQL, because it is about SQLite's files."""
    return skipIf(on_postgresql(), f"SQLite only: {reason}")


def postgresql_only(reason: str) -> Any:
    """Skip a test or a class of tests on SQLite, because it is about PostgreSQL's connections or schemas."""
    return skipIf(not on_postgresql(), f"PostgreSQL only: {reason}")


def prepare_run() -> None:
    """Create the run's template in the server that ``MEMORY_HUB_DATABASE_URL`` names."""
    from memoryhub.ops.hub_databases import prepare_databases

    os.environ[_RUN_VARIABLE] = os.environ[URL_VARIABLE]
    template = f"hub_test_{os.getpid()}"
    _copy("template0", template)
    use_database(_url_of(template))
    prepare_databases()
    close_connections()
    os.environ[_TEMPLATE_VARIABLE] = template
    _execute(f"ALTER DATABASE {template} ALLOW_CONNECTIONS false")  # else autovacuum's would delay copies


def remove_run() -> None:
    close_connections()
    template = os.environ[_TEMPLATE_VARIABLE]
    found = _execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [f"{template}_"])
    for name in [*(name for (name,) in found.fetchall()), template]:
        _drop(name)
    _server(os.getpid()).close()


def use_process_database() -> None:
    """Let Django's connections be to a database that only this process has."""
    use_database(_url_of(_fresh_name()))


def use_database(url: str) -> None:
    from django.db import connections

    close_connections()
    os.environ[URL_VARIABLE] = url
    for alias in ("default", "jobs"):
        connections.settings[alias]["URL"] = url


def close_connections() -> None:
    from django.db import connections

    from memoryhub.core.backends.postgresql.pool import pool_of

    connections.close_all()
    pool_of(os.environ[URL_VARIABLE]).discard_free()


def variables_of(home: Path) -> dict[str, str]:
    """Return the environment variables of processes whose hub has this home; its database is created when needed."""
    variables = {"MEMORY_HUB_HOME": str(home)}
    if on_postgresql():
        if home not in _databases:
            _databases[home] = _fresh_name()
        variables[URL_VARIABLE] = _url_of(_databases[home])
    return variables


def at_home(home: Path) -> mock._patch_dict:
    """Let this process work in another home, inside the block."""
    return mock.patch.dict(os.environ, variables_of(home))


def remove_home(home: Path) -> None:
    """Remove a home and its database."""
    if home in _databases:
        from memoryhub.core.backends.postgresql.pool import pool_of

        name = _databases.pop(home)
        pool_of(_url_of(name)).discard_free()
        _drop(name)
    shutil.rmtree(home, ignore_errors=True)


def _fresh_name() -> str:
    template = os.environ[_TEMPLATE_VARIABLE]
    name = f"{template}_{os.getpid()}_{next(_numbers)}"
    _copy(template, name)
    return name


def _copy(template: str, name: str) -> None:
    # Copying files is the faster way as long as no checkpoint has to wait for a disk.
    owner = urlsplit(os.environ[_RUN_VARIABLE]).username
    _execute(f"CREATE DATABASE {name} OWNER {owner} TEMPLATE {template} STRATEGY file_copy")


def _drop(name: str) -> None:
    _execute(f"DROP DATABASE {name} WITH (FORCE)")
    roles = _execute("SELECT quote_ident(rolname) FROM pg_roles WHERE starts_with(rolname, %s)", [f"hub_{name}_"])
    if names := ", ".join(role for (role,) in roles.fetchall()):
        _execute(f"DROP ROLE {names}")


def superuser_url() -> str:
    """Return the URL of the current database for a superuser."""
    return _for_superuser(os.environ[URL_VARIABLE])


def _for_superuser(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{SUPERUSER}@{parts.netloc.rpartition('@')[2]}").geturl()


def _url_of(database: str) -> str:
    return urlsplit(os.environ[_RUN_VARIABLE])._replace(path=f"/{database}").geturl()


def _execute(sql: str, parameters: list[str] | None = None) -> Any:
    return _server(os.getpid()).execute(sql, parameters)


@cache
def _server(_process: int) -> Any:
    import psycopg

    # Only a superuser may end a vacuum in a database that is dropped
    return psycopg.connect(_for_superuser(os.environ[_RUN_VARIABLE]), autocommit=True)
