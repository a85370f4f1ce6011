"""The test's own PostgreSQL server, its standby and its pooler."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from typing import Any
from unittest import TestCase

from tests import postgresql
from tests.pgbouncer import PgBouncer
from tests.postgresql import Cluster, failover_url
from tests.programs import needs
from tests.web.server import ROOT, poll


def connect(url: str) -> Any:
    import psycopg

    return closing(psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor))


def names(url: str) -> list[str]:
    with connect(url) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM note ORDER BY name").fetchall()]


def write(url: str, name: str) -> None:
    with connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS note (name text)")
        connection.execute("INSERT INTO note VALUES (%s)", [name])


@needs("postgresql")
class ClusterTests(TestCase):
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cluster = cls.enterClassContext(Cluster())

    def test_a_killed_server_starts_again_with_what_it_acknowledged(self) -> None:
        import psycopg

        with self.cluster.database() as url:
            write(url, "kept")
            with connect(url) as idle:
                self.cluster.kill()
                with self.assertRaises(psycopg.OperationalError):
                    idle.execute("SELECT 1")
            self.assertEqual(names(url), ["kept"])

    def test_a_synchronous_standby_takes_over_with_every_row(self) -> None:
        with Cluster(durable=False) as primary, primary.standby("second") as standby:
            primary.configure(synchronous_standby_names="second")
            database = primary.create_database()
            both = failover_url(primary, standby, database=database)
            write(both, "before")
            poll(standby.follows, what="the standby has all rows")
            self.assertEqual(names(standby.url(database)), ["before"])

            write(both, "acknowledged")
            primary.kill(restart=False)
            standby.promote()
            write(both, "after")
            self.assertEqual(names(both), ["acknowledged", "after", "before"])
        self.assertFalse(standby.folder.exists() or primary.folder.exists())

    def test_a_database_is_a_copy_of_its_template_and_goes_away(self) -> None:
        template = self.cluster.create_database("made")
        write(self.cluster.url(template), "from the template")
        with self.cluster.database(template=template) as url:
            self.assertEqual(names(url), ["from the template"])
            write(url, "own")
        self.assertEqual(names(self.cluster.url(template)), ["from the template"])
        self.assertEqual(self.cluster.execute("SELECT datname FROM pg_database WHERE datname LIKE 'hub%'"), [])

    def test_the_role_of_the_hub_is_no_superuser(self) -> None:
        with self.cluster.database() as url, connect(url) as connection:
            role = connection.execute("SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user")
            self.assertEqual(role.fetchall(), [(False, True)])

    def test_a_command_gets_the_url_of_an_empty_database_and_returns_its_code(self) -> None:
        program = f"import os; url = os.environ['{postgresql.URL_VARIABLE}']; print(url); raise SystemExit(7)"
        command = [sys.executable, "-m", "tests.postgresql", sys.executable, "-c", program]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)
        self.assertEqual((done.returncode, done.stderr), (7, ""))
        self.assertRegex(done.stdout, r"^postgresql://hub@127\.0\.0\.1:\d+/hub\n$")


@needs("postgresql", "pgbouncer")
class PgBouncerTests(TestCase):
    def test_clients_share_servers_between_transactions_and_follow_to_another_cluster(self) -> None:
        with (
            Cluster(durable=False) as first,
            Cluster(durable=False) as second,
            PgBouncer(first, pool_size=1) as bouncer,
        ):
            for cluster in (first, second):
                cluster.create_database("shared")
            url = bouncer.url("shared")
            with connect(url) as one, connect(url) as other:
                pids = {connection.execute("SELECT pg_backend_pid()").fetchone() for connection in (one, other)}
            self.assertEqual(len(pids), 1)
            write(url, "first")
            bouncer.point_to(second)
            write(url, "second")
            self.assertEqual([names(cluster.url("shared")) for cluster in (first, second)], [["first"], ["second"]])
