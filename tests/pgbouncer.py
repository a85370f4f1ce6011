"""A private PgBouncer for tests, which is gone when the process ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
from typing import Self

from tests.postgresql import ROLE, SUPERUSER, Cluster
from tests.programs import path_of
from tests.server_processes import (
    HOST,
    START_SECONDS,
    STOP_SECONDS,
    as_user,
    free_port,
    own_folder,
    temporary_folder,
    wait_for,
)


class PgBouncer:
    """PgBouncer in transaction mode before a cluster."""

    def __init__(self, cluster: Cluster, *, pool_size: int = 10) -> None:
        self._cluster = cluster
        self._pool_size = pool_size
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self.port = free_port()
        self.folder = temporary_folder("memory-hub-pgbouncer-")

    def __enter__(self) -> Self:
        atexit.register(self.close)
        try:
            own_folder(self.folder / "main")
            self._configure()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _configure(self) -> None:
        folder = self.folder / "main"
        users = "".join(f'"{name}" ""\n' for name in (SUPERUSER, ROLE))
        # What a managed service leaves at its default is at its default here.
        settings = {
            "listen_addr": HOST,
            "listen_port": self.port,
            "unix_socket_dir": folder,
            "auth_type": "trust",
            "auth_file": folder / "users",
            "admin_users": SUPERUSER,
            "pool_mode": "transaction",
            "default_pool_size": self._pool_size,
            "max_client_conn": 1000,
        }
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        databases = f"[databases]\n* = host={HOST} port={self._cluster.port}\n"
        for name, text in (("users", users), ("pgbouncer.ini", f"{databases}\n[pgbouncer]\n{lines}")):
            (folder / name).write_text(text)
            (folder / name).chmod(0o644)

    def _start(self) -> None:
        program = path_of("pgbouncer")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, self.folder / "main" / "pgbouncer.ini"],
                cwd=self.folder / "main",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **as_user(),
            )
        wait_for(self._answers, what="PgBouncer", seconds=START_SECONDS)

    def _answers(self) -> bool:
        assert self._process
        if self._process.poll() is not None:
            raise AssertionError(f"PgBouncer ended: {(self.folder / 'log').read_text()}")
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self.port), timeout=1).close()
            return True
        return False

    def url(self, database: str, *, role: str = ROLE) -> str:
        return f"postgresql://{role}@{HOST}:{self.port}/{database}"

    def close(self) -> None:
        if os.getpid() != self._owner:
            return
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)
