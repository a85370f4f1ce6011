"""A server that is killed, that fails over, and a pooler: nothing acknowledged is lost, and processes recover alone."""

from __future__ import annotations

import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from select import select
from unittest import TestCase

from django.test import tag

from tests.mcp.client import wait_until
from tests.pgbouncer import PgBouncer
from tests.postgres.machines import run_python, variables
from tests.postgres.writer import PROJECT
from tests.postgresql import Cluster, failover_url
from tests.programs import needs
from tests.server_processes import HOST

IS_LONG = os.environ.get("MEMORY_HUB_TORTURE") == "long"
ROUNDS = 100 if IS_LONG else 3
CHECK = f"""
import json
from memoryhub.core import log
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store, use_store
with use_store(project_store("{PROJECT}")):
    titles = [title for (title,) in rows.fetch("SELECT title FROM memories_memory")]
    count, last = rows.fetch("SELECT count(*), max(position) FROM raw_events")[0]
    print(json.dumps([titles, count == last, log.verify().ok, log.anchor_problem()]))
"""

CREATED = f"""
from memoryhub.core.stores.store import project_store, use_store
with use_store(project_store("{PROJECT}"), create=True):
    print("null")
"""
CUT = b"cut off at its commit"
REPEATED = f"""
import json
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import log
from memoryhub.core.errors import OutcomeUnknown
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store, use_store
def write():
    note = MemoryWrite(title="Note", content="{CUT.decode()}", idempotency_key="once")
    with use_store(project_store("{PROJECT}")):
        return write_memory(command=note).id
try:
    said = [write()]
except OutcomeUnknown as error:
    said = [error.code, error.data["idempotency_key"], error.message]
ids = [write(), write()]
with use_store(project_store("{PROJECT}")):
    count = rows.fetch("SELECT count(*) FROM memories_memory")[0][0]
    print(json.dumps([said, ids, count, log.verify().ok]))
"""


class Writer:
    def __init__(self, name: str, home: Path, url: str) -> None:
        environment = {**os.environ, **variables(home, url)}
        command = [sys.executable, "-m", "tests.postgres.writer", name]
        self._file = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the writer
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=self._file, stderr=subprocess.DEVNULL, text=True
        )

    def lines(self) -> list[str]:
        with os.fdopen(os.dup(self._file.fileno()), "r") as copy:
            return os.pread(copy.fileno(), 1 << 26, 0).decode().splitlines()

    @property
    def acknowledged(self) -> list[str]:
        return [line for line in self.lines() if not line.startswith("!")]

    @property
    def refusals(self) -> list[str]:
        return [line for line in self.lines() if line.startswith("!")]

    def wait_for_more(self) -> None:
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > before + 2)

    def stop(self) -> None:
        self.process.communicate()
        self._file.seek(0)


@contextmanager
def writing(url: str, folder: Path, count: int = 2) -> Iterator[list[Writer]]:
    writers = [Writer(f"w{number}", folder / f"home-{number}", url) for number in range(count)]
    try:
        for writer in writers:
            writer.wait_for_more()
        yield writers
    finally:
        for writer in writers:
            writer.stop()


@contextmanager
def forgetful_relay(upstream: int) -> Iterator[int]:
    """Yield a port of the server at which the connection that writes ``CUT`` ends before the answer to its COMMIT."""
    cut = threading.Event()

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            client, is_cut = self.request, False
            with socket.create_connection((HOST, upstream)) as server:
                while True:
                    for source in select([client, server], [], [])[0]:
                        if not (data := source.recv(1 << 16)):
                            return
                        (server if source is client else client).sendall(data)
                        is_cut = is_cut or CUT in data
                        if source is client and b"COMMIT" in data and is_cut and not cut.is_set():
                            cut.set()
                            server.recv(1 << 16)  # it has committed
                            return

    with socketserver.ThreadingTCPServer((HOST, 0), Relay) as relay:
        relay.daemon_threads = True
        threading.Thread(target=relay.serve_forever).start()
        try:
            yield relay.server_address[1]
        finally:
            relay.shutdown()
    assert cut.is_set()


@needs("postgresql")
@tag("attack")
class FailureTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def assert_nothing_is_lost(self, writers: list[Writer], url: str) -> None:
        titles, is_gapless, holds, problem = run_python(CHECK, self.folder / "home-0", url)
        acknowledged = {line for writer in writers for line in writer.acknowledged}
        self.assertEqual(acknowledged - set(titles), set())
        self.assertEqual((is_gapless, holds, problem), (True, True, ""))

    def test_a_killed_server_loses_nothing_acknowledged_and_writers_go_on(self) -> None:
        with Cluster() as cluster, cluster.database() as url:
            with writing(url, self.folder) as writers:
                for _ in range(ROUNDS):
                    cluster.kill()
                    for writer in writers:
                        writer.wait_for_more()
            self.assert_nothing_is_lost(writers, url)
            refusals = {line.split(" ", 2)[2] for writer in writers for line in writer.refusals}
            for sentence in refusals:
                self.assertRegex(sentence, r"^memory database unavailable: ")

    def test_after_a_failover_a_synchronous_replica_has_everything(self) -> None:
        with Cluster() as primary:
            database = primary.create_database()
            with primary.standby() as standby:
                primary.configure(synchronous_standby_names=standby.name)
                wait_until(standby.follows)
                url = failover_url(primary, standby, database=database)
                with writing(url, self.folder) as writers:
                    primary.kill(restart=False)
                    wait_until(lambda: all(writer.refusals for writer in writers))
                    standby.promote()
                    standby.configure(synchronous_standby_names="")
                    for writer in writers:
                        writer.wait_for_more()
                self.assert_nothing_is_lost(writers, url)

    def test_what_a_replica_had_not_received_is_noticed(self) -> None:
        with Cluster() as primary:
            database = primary.create_database()
            with primary.standby() as standby:
                url = failover_url(primary, standby, database=database)
                with writing(url, self.folder, 1) as writers:
                    wait_until(standby.follows)
                    standby.execute("SELECT pg_wal_replay_pause()")
                    standby.stop()
                    writers[0].wait_for_more()
                    primary.kill(restart=False)
                standby.start()
                standby.promote()
                *_, problem = run_python(CHECK, self.folder / "home-0", url)
                self.assertRegex(problem, r"^the log ends at #\d+, but #\d+ was acknowledged; its tail was cut$")

    def test_a_commit_whose_answer_is_lost_has_an_unknown_outcome_and_is_stored_once_when_it_is_repeated(self) -> None:
        home = self.folder / "home"
        with Cluster(durable=False) as cluster, cluster.database() as url:
            run_python(CREATED, home, url)
            with forgetful_relay(cluster.port) as port:
                said = run_python(REPEATED, home, url.replace(f":{cluster.port}/", f":{port}/"))
            (code, key, sentence), ids, count, is_sound = said
            self.assertEqual((code, key), ("outcome_unknown", "once"))
            self.assertRegex(sentence, r"^memory database unavailable: .*may be stored or not; .*\(once\).*$")
            self.assertEqual((len(set(ids)), count, is_sound), (1, 1, True))

    @needs("postgresql", "pgbouncer")
    def test_a_pooler_in_transaction_mode_is_enough(self) -> None:
        with Cluster() as cluster, ExitStack() as stack:
            database = cluster.create_database()
            bouncer = stack.enter_context(PgBouncer(cluster, pool_size=2))
            url = bouncer.url(database)
            with writing(url, self.folder, 6) as writers:
                for writer in writers:
                    writer.wait_for_more()
            self.assert_nothing_is_lost(writers, url)
            rebuilt = run_python(REBUILD, self.folder / "home-0", url)
            self.assertTrue(rebuilt)


REBUILD = f"""
import json
from memoryhub.core import log
from memoryhub.core.stores.store import project_store, use_store
with use_store(project_store("{PROJECT}")):
    print(json.dumps(log.rebuild().identical))
"""
