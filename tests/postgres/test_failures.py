"""Servers and machines that are killed or fail over: nothing acknowledged is lost, and processes recover alone."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from select import select
from typing import Any
from unittest import TestCase

from django.test import tag

from tests.mcp.client import wait_until
from tests.pgbouncer import PgBouncer
from tests.postgres import machines
from tests.postgres.machines import begin_python, run_python
from tests.postgresql import Cluster, failover_url, hub_template, shared_cluster
from tests.programs import needs
from tests.server_processes import HOST, children_of
from tests.torture.rounds import is_long, randomness, rounds
from tests.web.server import Server, alive

PROJECT = "alpha"


# Prints the title of each memory that was acknowledged, and a refusal after "!", until standard input ends.
WRITER = f"""
import threading
stop, number = threading.Event(), 0
threading.Thread(target=lambda: (sys.stdin.read(), stop.set())).start()
while not stop.is_set():
    number += 1
    title = f"NAME-{{number}}"
    try:
        with use_store(project_store("{PROJECT}"), create=number == 1):
            write_memory(command=MemoryWrite(title=title, content=f"the content of {{title}}"))
        print(title, flush=True)
    except HubError as error:
        print("!", *error.message.split(), flush=True)
        stop.wait(0.05)
"""
ROUNDS = rounds(3, long=100)
CHECK = f"""
with use_store(project_store("{PROJECT}")):
    titles = [title for (title,) in rows.fetch("SELECT title FROM memories_memory")]
    count, last = rows.fetch("SELECT count(*), max(position) FROM raw_events")[0]
    print(json.dumps([titles, count == last, log.verify().ok, log.anchor_problem()]))
"""

CREATED = f"""
with use_store(project_store("{PROJECT}"), create=True):
    print("null")
"""
REBUILD = f"""
with use_store(project_store("{PROJECT}")):
    print(json.dumps(log.rebuild().identical))
"""
CUT = b"cut off at its commit"
REPEATED = f"""
from memoryhub.core.errors import OutcomeUnknown
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
        self._file = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the writer
        self._lines: list[str] = []
        self.process = begin_python(WRITER.replace("NAME", name), home, url, stdout=self._file)

    def lines(self, *, refused: bool = False) -> list[str]:
        if not self._file.closed:
            self._lines = os.pread(self._file.fileno(), 1 << 26, 0).decode().splitlines()
        return [line for line in self._lines if line.startswith("!") == refused]

    def wait_for_more(self) -> None:
        before = len(self.lines())
        wait_until(lambda: len(self.lines()) > before + 2)

    def stop(self) -> None:
        self.process.communicate()
        self.lines()  # to have the last ones after the file is gone
        self._file.close()


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
        acknowledged = {line for writer in writers for line in writer.lines()}
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
            for refusal in {line for writer in writers for line in writer.lines(refused=True)}:
                self.assertRegex(refusal, r"^! memory database unavailable: ")

    def test_after_a_failover_a_synchronous_replica_has_everything(self) -> None:
        with Cluster() as primary:
            database = primary.create_database()
            with primary.standby() as standby:
                primary.configure(synchronous_standby_names=standby.name)
                wait_until(standby.follows)
                url = failover_url(primary, standby, database=database)
                with writing(url, self.folder) as writers:
                    primary.kill(restart=False)
                    wait_until(lambda: all(writer.lines(refused=True) for writer in writers))
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
        cluster = shared_cluster()
        with cluster.database() as url:
            run_python(CREATED, home, url)
            with forgetful_relay(cluster.port) as port:
                said = run_python(REPEATED, home, url.replace(f":{cluster.port}/", f":{port}/"))
            (code, key, sentence), ids, count, is_sound = said
            self.assertEqual((code, key), ("outcome_unknown", "once"))
            self.assertRegex(
                sentence, r"^memory database unavailable: .*may be stored or not; .*idempotency_key=once.*$"
            )
            self.assertEqual((len(set(ids)), count, is_sound), (1, 1, True))

    @needs("postgresql", "pgbouncer")
    def test_a_pooler_in_transaction_mode_is_enough(self) -> None:
        cluster = shared_cluster()
        with PgBouncer(cluster, pool_size=2) as bouncer:
            url = bouncer.url(cluster.create_database())
            with writing(url, self.folder, 6) as writers:
                for writer in writers:
                    writer.wait_for_more()
            self.assert_nothing_is_lost(writers, url)
            self.assertTrue(run_python(REBUILD, self.folder / "home-0", url))


KILL_SECONDS = 10.0 if is_long() else 4.0
KILLS = 30 if is_long() else 4
PROJECTS = 6
WRITERS = 4

# Asks for a run over each project as soon as the one before has succeeded, and collects every run.
_FEEDER = """
import threading, time
from django_q.tasks import async_task
from memoryhub.core import clock
from memoryhub.models import JobRun
from memoryhub.ops.jobs.schedules import FUNCTION

stopping = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stopping.set()), daemon=True).start()
stores = [f"store:project:p{number}" for number in range(PROJECTS)]
asked, waiting, runs, last = {}, {}, [], 0
def ask(store):
    name = f"ask-{len(asked)}-"
    asked[name] = store
    waiting[store] = name
    async_task(FUNCTION, "verify stores", due=clock.now().isoformat(), aliases=[store], asked_by=name)
until = None
while True:
    if stopping.is_set() and until is None:
        until = time.monotonic() + 150
    for run in JobRun.objects.filter(pk__gt=last, job="verify stores").order_by("pk"):
        last = run.pk
        name = run.asked_by.split(" on ")[0]
        runs.append([name, run.store, run.started_at.timestamp(), run.ended_at.timestamp(), run.result])
        if run.result in ("ok", "failed") and waiting.get(run.store) == name:
            del waiting[run.store]
    if until and (not waiting or time.monotonic() > until):
        break
    if until is None:
        for store in stores:
            if store not in waiting:
                ask(store)
    time.sleep(0.1)
print(json.dumps({"asked": asked, "runs": runs}))
"""
_CHECK = """
from memories.models import Memory
found = {}
for number in range(PROJECTS):
    with use_store(project_store(f"p{number}")):
        verified = log.verify()
        found[f"p{number}"] = {
            "ok": verified.ok, "finding": verified.describe(),
            "differ": [table.table for table in log.rebuild().tables if not table.identical],
            "titles": dict(Memory.objects.values_list("id", "title")),
        }
print(json.dumps(found))
"""


@dataclass
class Machine:
    home: Path
    url: str
    server: Server
    restarting: threading.Thread | None = None

    def kill_server(self) -> None:
        self.server.process.kill()
        self.restarting = threading.Thread(target=self._restart)
        self.restarting.start()

    def _restart(self) -> None:
        self.server.close()
        self.server = machines.start(self.home, self.url).wait_until_ready()

    def kill_worker(self, chance: random.Random) -> None:
        if workers := alive(children_of(self.server.process.pid)):
            with suppress(ProcessLookupError):
                os.killpg(chance.choice(workers), signal.SIGKILL)

    @property
    def is_up(self) -> bool:
        return self.restarting is None or not self.restarting.is_alive()


# Its server may be another one by then
def _close(machine: Machine) -> None:
    machine.server.close()


# The titles of what was acknowledged, by project and id
Written = dict[tuple[str, int], str]


@needs("postgresql")
@tag("attack")
class KilledMachinesTests(TestCase):
    def test_no_acknowledged_write_is_lost_and_no_job_runs_twice(self) -> None:
        with ExitStack() as stack:
            url = stack.enter_context(shared_cluster().database(template=hub_template()))
            homes = [stack.enter_context(machines.new_home()) for _ in range(3)]
            # A run of the schedule could do what was asked for, under another name
            code, output = machines.run("jobs", "verify-stores", "--off", home=homes[2], url=url)
            self.assertEqual(code, 0, output)
            both = []
            for home in homes[:2]:
                machine = Machine(home, url, machines.start(home, url).wait_until_ready())
                stack.callback(_close, machine)
                both.append(machine)
            for number in range(PROJECTS):
                self.assertEqual(both[0].server.api("POST", "projects", {"project_id": f"p{number}"}).status, 201)
            written, jobs = self.attack(stack, both, homes[2], url)
            found = machines.run_python(f"PROJECTS = {PROJECTS}\n{_CHECK}", homes[2], url)
        titles = {key: found[key[0]]["titles"].get(str(key[1])) for key in written}
        self.assertEqual({key: title for key, title in written.items() if titles[key] != title}, {})
        self.assertEqual({name: state["finding"] for name, state in found.items() if not state["ok"]}, {})
        self.assertEqual({name: state["differ"] for name, state in found.items() if state["differ"]}, {})
        self.assertGreater(len(written), KILLS)
        self.check_jobs(jobs)

    def attack(self, stack: ExitStack, both: list[Machine], home: Path, url: str) -> tuple[Written, Any]:
        feeder = stack.enter_context(machines.begin_python(f"PROJECTS = {PROJECTS}\n{_FEEDER}", home, url))
        stack.callback(feeder.kill)
        written: Written = {}
        stopping = threading.Event()
        writers = [threading.Thread(target=write, args=[number, both, written, stopping]) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        try:
            with randomness() as chance:
                self.kill_some(both, chance)
        finally:
            stopping.set()
            for writer in writers:
                writer.join()
        output, _ = feeder.communicate()
        return written, json.loads(output.splitlines()[-1])

    def kill_some(self, both: list[Machine], chance: random.Random) -> None:
        for _ in range(KILLS):
            time.sleep(KILL_SECONDS)  # the moment is what is tried
            up = [machine for machine in both if machine.is_up]
            if not up:
                continue
            machine = chance.choice(up)
            if chance.random() < 0.5:
                machine.kill_server()
            else:
                machine.kill_worker(chance)
        for machine in both:
            if machine.restarting:
                machine.restarting.join()

    def check_jobs(self, jobs: Any) -> None:
        well: dict[str, int] = dict.fromkeys(jobs["asked"], 0)
        spans: dict[str, list[tuple[float, float]]] = {}
        for name, store, began, ended, result in jobs["runs"]:
            if result == "ok":
                spans.setdefault(store, []).append((began, ended))
                if name in well:
                    well[name] += 1
        self.assertEqual([run for run in jobs["runs"] if run[4] == "failed"], [])
        self.assertEqual({name: count for name, count in well.items() if count != 1}, {})
        for store, of_store in spans.items():
            of_store.sort()
            pairs = pairwise(of_store)
            self.assertEqual([(one, other) for one, other in pairs if other[0] < one[1]], [], f"overlaps of {store}")


def write(number: int, both: list[Machine], written: Written, stopping: threading.Event) -> None:
    for count in itertools.count(1):
        if stopping.is_set():
            return
        project, title = f"p{count % PROJECTS}", f"writer {number} note {count}"
        server = both[(number + count) % 2].server
        with suppress(Exception):  # whatever a client meets while a server dies
            reply = server.api("POST", f"projects/{project}/memories", {"title": title, "content": f"text of {title}"})
            if reply.status == 201:
                written[project, reply.json()["id"]] = title
                continue
        stopping.wait(0.05)
