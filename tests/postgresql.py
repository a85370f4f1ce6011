"""A private PostgreSQL for tests, and its standby; everything is gone when the process ends.

``python -m tests.postgresql COMMAND…`` runs a command with ``MEMORY_HUB_DATABASE_URL`` set to a new database.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from tests.programs import path_of, why_missing
from tests.server_processes import (
    HOST,
    START_SECONDS,
    STOP_SECONDS,
    as_user,
    children_of,
    free_port,
    is_alive,
    own_folder,
    temporary_folder,
    wait_for,
)

URL_VARIABLE = "MEMORY_HUB_DATABASE_URL"
# The role of the hub: no superuser, because a managed service gives none
ROLE = "hub"
SUPERUSER = "postgres"
# A killed server still has all that it acknowledged; only a machine that stops loses some.
_FAST = {"fsync": "off", "full_page_writes": "off"}
_OPTIONS = {
    "max_connections": "200",
    "listen_addresses": HOST,
    "logging_collector": "off",
    "timezone": "UTC",
    "autovacuum_naptime": "15s",
    # A query that writes so much is a defect
    "temp_file_limit": "1GB",
}


class Cluster:
    """A PostgreSQL server with a folder of its own.

    Args:
        folder: where it is made; the user of the server must be able to reach it. Default: a temporary folder.
        port: default a free one.
        durable: False is faster, in memory where there is room, and enough unless the machine stops.
        options: more settings of the server.
    """

    def __init__(
        self,
        folder: Path | None = None,
        port: int | None = None,
        *,
        durable: bool = True,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._parent = None if folder else temporary_folder("memory-hub-postgresql-", in_memory=not durable)
        self.folder = folder or self._parent / "main"  # type: ignore[operator]
        self.port = port or free_port()
        self.durable = durable
        self.options = {**_OPTIONS, **({} if durable else _FAST), **options}
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._owner = os.getpid()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def __enter__(self) -> Self:
        atexit.register(self.close)
        try:
            own_folder(self.folder)
            self._fill()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _fill(self) -> None:
        self._program("initdb", "-D", self.data, "-U", SUPERUSER, "-A", "trust", "--locale=C", "-E", "UTF8", "-N")

    def _program(self, name: str, *arguments: str | Path) -> None:
        folder = Path(path_of("postgresql"))
        done = subprocess.run(
            [folder / name, *arguments], cwd=self.folder, capture_output=True, text=True, check=False, **as_user()
        )
        if done.returncode:
            raise AssertionError(f"{name} ended with {done.returncode}: {done.stdout}{done.stderr}")

    def start(self) -> None:
        folder = Path(path_of("postgresql"))
        settings = {**self.options, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        arguments = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            # A session of its own: Ctrl-C is the tests', which stop the server at their end.
            self._process = subprocess.Popen(
                [folder / "postgres", "-D", self.data, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **as_user(),
            )
        wait_for(self._is_ready, what="a PostgreSQL that is ready", seconds=START_SECONDS)
        if not self._has_role():
            self.execute(f"CREATE ROLE {ROLE} LOGIN CREATEDB CREATEROLE")

    def _is_ready(self) -> bool:
        assert self._process
        if self._process.poll() is not None:
            raise AssertionError(f"PostgreSQL ended with {self._process.returncode}: {self.log()[-2000:]}")
        # The server writes its state into the eighth line.
        with contextlib.suppress(FileNotFoundError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return len(lines) > 7 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready"
        return False

    def _has_role(self) -> bool:
        in_recovery, roles = self.execute(
            "SELECT pg_is_in_recovery(), (SELECT count(*) FROM pg_roles WHERE rolname = %s)", [ROLE]
        )[0]
        return bool(in_recovery or roles)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def stop(self, *, fast: bool = True) -> None:
        """Stop the server after a checkpoint, or at once, which is what a crash leaves."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT if fast else signal.SIGQUIT)
            self._process.wait(STOP_SECONDS)

    def kill(self, *, restart: bool = True) -> None:
        """Kill every process of the server, and start it again."""
        assert self._process
        running = [self._process.pid, *children_of(self._process.pid)]
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(STOP_SECONDS)
        # A server does not start while one of the old one's processes still has its memory.
        wait_for(lambda: not any(map(is_alive, running)), what="the end of all processes", seconds=STOP_SECONDS)
        if restart:
            self.start()

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a fork of the tests' process that ends
        self.stop(fast=False)
        for path in filter(None, [self.folder, self._parent]):
            shutil.rmtree(path, ignore_errors=True)
        atexit.unregister(self.close)

    def url(self, database: str = "postgres", *, role: str = ROLE) -> str:
        return f"postgresql://{role}@{HOST}:{self.port}/{database}"

    def execute(self, sql: str, parameters: Sequence[Any] = (), *, database: str = "postgres") -> list[Any]:
        """Run one statement as the superuser outside a transaction, and return its rows."""
        import psycopg

        with psycopg.connect(self.url(database, role=SUPERUSER), autocommit=True) as connection:
            cursor = connection.execute(sql, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def configure(self, **settings: str) -> None:
        """Change settings of the running server; those that need a restart wait for one."""
        for name, value in settings.items():
            self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.execute("SELECT pg_reload_conf()")

    def create_database(self, name: str = "", *, template: str = "template0", locale: str = "") -> str:
        """Create a database of the hub's role, and return its name.

        Args:
            name: default a new one.
            template: the database that it is a copy of.
            locale: of ICU, such as ``en-US``, where the server has ICU; texts sort by code point without.
        """
        self._databases += 1
        name = name or f"hub_{os.getpid()}_{self._databases}"
        has_icu = self.execute("SELECT 1 FROM pg_collation WHERE collprovider = 'i' LIMIT 1")
        collation = f" LOCALE_PROVIDER icu ICU_LOCALE '{locale}'" if locale and has_icu else ""
        self.execute(f"CREATE DATABASE {name} OWNER {ROLE} TEMPLATE {template}{collation}")
        return name

    def end_leases(self, database: str) -> None:
        """End the leases of processes that were killed, which would hold for some seconds more."""
        if self.execute("SELECT to_regclass('hub.leases') IS NOT NULL", database=database) == [(True,)]:
            self.execute("UPDATE hub.leases SET until = '-infinity'", database=database)

    def drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    @contextlib.contextmanager
    def database(self, *, template: str = "template0", locale: str = "") -> Iterator[str]:
        """Yield the URL of a new database, which is dropped at the end."""
        name = self.create_database(template=template, locale=locale)
        try:
            yield self.url(name)
        finally:
            self.drop_database(name)

    def standby(self, name: str = "standby") -> Standby:
        """Return a copy of this cluster that follows it, made when it is entered."""
        return Standby(self, name)

    def promote(self) -> None:
        """Let a standby take writes."""
        ((promoted,),) = self.execute("SELECT pg_promote(true, 60)")
        assert promoted, self.log()[-2000:]
        if not self._has_role():
            raise AssertionError("the primary had no role for the hub when it was copied")


@cache
def _shared(_process: int) -> Cluster:
    cluster = Cluster(durable=False).__enter__()
    # Processes of a parallel run end without the functions of ``atexit``: what has read the end of its input stops it
    lives, _kept_open = os.pipe()
    stop = 'cat; if [ -e "$2" ]; then kill -QUIT "$1"; while kill -0 "$1"; do sleep 0.1; done; rm -rf "$2"; fi'
    command = ["sh", "-c", stop, "sh", str(cluster.pid), str(cluster.folder.parent)]
    null = os.open(os.devnull, os.O_WRONLY)
    files = [(os.POSIX_SPAWN_DUP2, given, number) for number, given in enumerate((lives, null, null))]
    os.posix_spawnp("sh", command, os.environ, file_actions=files)
    os.close(lives)
    os.close(null)
    return cluster


def shared_cluster() -> Cluster:
    """Return a server, not durable, for all tests of this process that neither stop it nor look at its files."""
    return _shared(os.getpid())


@cache
def _hub_template(_process: int) -> str:
    from tests import forks

    cluster = shared_cluster()
    name = cluster.create_database()
    program = "from memoryhub.ops.hub_databases import prepare_databases; prepare_databases()"
    with tempfile.TemporaryDirectory() as home:
        code, _, errors = forks.run_program(program, MEMORY_HUB_HOME=home, **{URL_VARIABLE: cluster.url(name)})
    assert code == 0, errors
    return name


def hub_template() -> str:
    """Return a database of the shared server that has the hub's tables, whose migrations take seconds."""
    return _hub_template(os.getpid())


class Standby(Cluster):
    """A streaming replica of another cluster: ``name`` is what ``synchronous_standby_names`` calls it."""

    def __init__(self, primary: Cluster, name: str) -> None:
        super().__init__(options=primary.options, durable=primary.durable)
        self.name = name
        self._primary = primary

    def _fill(self) -> None:
        source = f"host={HOST} port={self._primary.port} user={SUPERUSER} application_name={self.name}"
        self._program("pg_basebackup", "-D", self.data, "-d", source, "-R", "-X", "stream", "-c", "fast", "-N")

    def follows(self) -> bool:
        """Return whether the primary has sent all it has, and this cluster applied it."""
        rows = self._primary.execute(
            "SELECT 1 FROM pg_stat_replication WHERE application_name = %s AND replay_lsn >= pg_current_wal_lsn()",
            [self.name],
        )
        return bool(rows)


def failover_url(*clusters: Cluster, database: str) -> str:
    """Return a URL that leads to whichever of the clusters takes writes."""
    hosts = ",".join(f"{HOST}:{cluster.port}" for cluster in clusters)
    return f"postgresql://{ROLE}@{hosts}/{database}?target_session_attrs=read-write"


def _run(command: Iterable[str]) -> int:
    if reason := why_missing("postgresql"):
        print(f"The tests on PostgreSQL were left out: {reason}.", file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with Cluster(durable=False) as cluster:
        environment = {**os.environ, URL_VARIABLE: cluster.url(cluster.create_database("hub"))}
        return subprocess.run([*command], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1:]))
