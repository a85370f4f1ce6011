"""Real processes that run jobs: the worker of the server, and kills at any point of any job."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import SimpleTestCase, tag

from memories.schemas import MemoryTouch, MemoryWrite
from memories.search.index import index_problem
from memories.services import delete_memory, write_memories
from memories.uses.events import Use
from memories.uses.notes import note_read
from memoryhub.core import clock, log
from memoryhub.core.jobs import Job, defined_jobs, find_job
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import rows
from memoryhub.models import JobRun
from memoryhub.ops import jobs  # noqa: F401 - defines all jobs
from memoryhub.ops.jobs.status import models_behind, status_of_job
from memoryhub.ops.serving.worker import MonotonicEvent
from sessions_app.schemas import SessionStart, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.turns import begin_turn
from tests.home import UNMEASURED
from tests.support import HubTestCase
from tests.web.server import ROOT, Server, migrated_home, poll, run, serving, temporary_home

_PROGRAM = """
import django, json, os, sys
django.setup()
from django.db import connections
from memoryhub.ops import jobs
from memoryhub.core.jobs import find_job
from memoryhub.ops.jobs.status import job_statuses

def say(line):
    os.write(1, f"{line}\\n".encode())

def run(name):
    if name == "stand":
        return {each.job.name: [one.last and one.last.result for one in each.stores] for each in job_statuses()}
    return [(each.result, each.message) for each in jobs.run_job(job=find_job(name), asked_by="ada")]

while name := sys.stdin.readline().strip():
    connections.close_all()
    child = os.fork()
    if child == 0:
        say(f"began {os.getpid()}")
        say(json.dumps(run(name)))
        os._exit(0)
    sys.stdin.readline()  # until then the child's number is no other process's
    say(f"ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
"""


class Runner:
    def __init__(self) -> None:
        settings = {"DJANGO_SETTINGS_MODULE": "memoryhub.settings", "MEMORY_HUB_LOG": "CRITICAL"}
        environment = {**os.environ, **UNMEASURED, **settings}
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", _PROGRAM]
        self.process = subprocess.Popen(command, env=environment, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def begin(self, name: str) -> int:
        """Have a child run a job (or tell how all stand); return its process number."""
        self._say(name)
        return int(self._line().removeprefix("began "))

    def end(self) -> Any:
        """Wait for the child, and return what it says of the run; None where it was killed before it said anything."""
        self._say("end")
        lines = [self._line()]
        while not lines[-1].startswith("ended "):
            lines.append(self._line())
        return json.loads(lines[0]) if len(lines) > 1 else None

    def run(self, name: str) -> Any:
        self.begin(name)
        return self.end()

    def _say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        assert line, "the process that runs jobs has died"
        return line

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            pipe.close()


class JobProcessesTestCase(HubTestCase):
    """A home whose hub.db and queue are files of its own, and work for every job."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("hub.db", "jobs.db"):
            shutil.copyfile(migrated_home() / name, self.home / name)

    def runner(self) -> Runner:
        runner = Runner()
        self.addCleanup(runner.close)
        return runner

    def make_work(self, project: str, round_: int = 0, *, memories: int = 12) -> None:
        with self.store(project):
            self._make_work(round_, memories)

    def _make_work(self, round_: int, memories: int) -> None:
        named = [f"{round_}-{number}" for number in range(memories)]
        with clock.frozen(clock.now() - timedelta(days=40 - round_ % 5)):
            written = write_memories(commands=[MemoryWrite(title=item, content=f"text {item}") for item in named])
            ids = [item.id for item in written]
            for number in range(2):
                start_session(command=SessionStart(session_id=f"s{round_}-{number}"))
                begin_turn(command=TurnBegin(session_id=f"s{round_}-{number}", turn_id=f"t{round_}"))
            for item in ids[:4]:
                delete_memory(command=MemoryTouch(id=item))
        with use_origin(source="mcp"):
            note_read(Use.FETCHED, ids)


_FILL_AND_MISS = """
import io
from django.core.management import call_command
call_command("import", "markdown", {notes!r}, "--project", "alpha", stdout=io.StringIO())
from datetime import timedelta
from django_q.models import Schedule
from django_q.scheduler import scheduler
from memoryhub.core import clock
Schedule.objects.update(next_run=clock.now() - timedelta(days=3))
for _ in range(3):
    scheduler()
print(Schedule.objects.filter(next_run__lt=clock.now()).count())
from memoryhub.core.jobs import find_job
from memoryhub.core.stores.store import project_store
from memoryhub.ops import jobs
from memoryhub.ops.jobs.targets import Target
from memoryhub.ops.jobs.schedules import queue_now
queue_now(job=find_job("rebuild"), targets=[Target(project_store("alpha"))], asked_by="ada")
"""


@tag("process")
class WorkerTests(SimpleTestCase):
    def test_three_days_off_are_one_run_of_each_job_and_a_killed_run_is_done_again(self) -> None:
        with temporary_home() as home:
            self.assertEqual(self.shell(home, _FILL_AND_MISS.format(notes=self.notes(home))), "0")
            with serving(home=home) as server:
                self.kill_a_rebuild(home, server)
                self.assert_missed_are_done_once(home)

    def notes(self, home: Path) -> str:
        notes = home.parent / "notes"
        notes.mkdir()
        text = "\n".join(f"# Note {number}\n\nText of note {number}.\n" for number in range(800))
        (notes / "notes.md").write_text(text)
        return str(notes)

    def shell(self, home: Path, program: str) -> str:
        code, output = run("shell", "--verbosity", "0", "--command", program, home=home)
        self.assertEqual(code, 0, output)
        return output.strip()

    def assert_missed_are_done_once(self, home: Path) -> None:
        daily = ("verify stores", "backup", "prune use statistics")
        poll(lambda: not self.waiting(home), what="an empty queue")
        done = [job for job, store, result in self.runs(home) if store == "store:project:alpha" and job in daily]
        self.assertEqual(sorted(done), sorted(daily))

    def kill_a_rebuild(self, home: Path, server: Server) -> None:
        lock = home / "locks" / "rebuild.project-alpha"
        begun = poll(lambda: lock.exists() and lock.read_bytes().strip(b" \0"), what="the beginning of the rebuild")
        pid = int(begun.partition(b'"pid": ')[2].partition(b",")[0])
        self.assertIn(pid, server.worker_pids())
        os.kill(pid, signal.SIGKILL)
        ends = poll(lambda: self.ends(home, "rebuild", 2), what="the end of the run that follows")
        self.assertEqual(ends, ["interrupted", "ok"])

    def ends(self, home: Path, job: str, count: int) -> list[str]:
        found = [result for name, _, result in self.runs(home) if name == job]
        return found if len(found) >= count else []

    def runs(self, home: Path) -> list[tuple[str, str, str]]:
        with self.database(home / "hub.db") as database:
            return list(database.execute("SELECT job, store, result FROM memoryhub_jobrun ORDER BY id"))

    def waiting(self, home: Path) -> int:
        with self.database(home / "jobs.db") as database:
            return int(database.execute("SELECT count(*) FROM django_q_ormq").fetchone()[0])

    @contextmanager
    def database(self, path: Path) -> Iterator[Any]:
        with closing(sqlite3.connect(path, timeout=30)) as database:
            yield database


@tag("process")
class MonotonicEventTests(SimpleTestCase):
    def test_its_wait_does_not_end_at_a_time_of_the_system_clock(self) -> None:
        event = MonotonicEvent()
        with mock.patch.object(Event, "wait", side_effect=AssertionError("until a time of the system's clock")):
            self.assertFalse(event.wait(0.001))
            event.set()
            self.assertTrue(event.wait(600))


# For each job
KILLS = int(os.environ.get("MEMORY_HUB_TEST_JOB_KILLS", "1"))


class DeadRunsTests(JobProcessesTestCase):
    def test_a_run_whose_process_died_is_interrupted_at_the_next_look_and_never_running(self) -> None:
        runner = self.runner()
        self.make_work("alpha", memories=300)
        pid = runner.begin("rebuild")
        lock = self.home / "locks" / "rebuild.project-alpha"
        poll(lambda: lock.exists() and lock.read_bytes().strip(), what="the beginning of the run")
        os.kill(pid, signal.SIGKILL)
        runner.end()
        standing = status_of_job(find_job("rebuild"))
        self.assertEqual((standing.result, standing.now), ("interrupted", None))
        kept = JobRun.objects.get(job="rebuild")
        self.assertEqual((kept.pid, kept.message), (pid, "its process ended during the run"))
        self.assertEqual(status_of_job(find_job("rebuild")).result, "interrupted")
        self.assertEqual(JobRun.objects.filter(job="rebuild").count(), 1)


@tag("attack")
class KilledJobsTests(JobProcessesTestCase):
    def test_a_kill_at_any_point_of_any_job_leaves_all_stores_whole_and_the_next_run_completes(self) -> None:
        runner = self.runner()
        cut = {job.name: self.kill_again_and_again(runner, job) for job in defined_jobs()}
        self.assertGreater(sum(cut.values()), 0, cut)
        ended = {name: set(results) for name, results in runner.run("stand").items()}
        self.assertEqual(
            ended, {name: {"ok"} for name in cut} | {"embed texts": {"failed"}}
        )  # nobody holds a model here
        self.assertEqual([path.name for path in self.home.rglob("*.draft")], [])
        with self.store("alpha"):
            different = [table.table for table in log.rebuild().tables if not table.identical]
        self.assertEqual(different, [])

    def kill_again_and_again(self, runner: Runner, job: Job) -> int:
        self.make_work("alpha", self.rounds())
        lasts = self.timed(runner, job)
        cut = 0
        for _ in range(KILLS):
            self.make_work("alpha", self.rounds())
            cut += self.kill_once(runner, job, after=random.uniform(0, lasts * 1.1))
        for _, message in runner.run(job.name):
            self.assertNotIn("differed", message)
        return cut

    def timed(self, runner: Runner, job: Job) -> float:
        began = time.monotonic()
        runner.run(job.name)
        return time.monotonic() - began

    def kill_once(self, runner: Runner, job: Job, *, after: float) -> bool:
        pid = runner.begin(job.name)
        time.sleep(after)  # not to wait for anything: the moment is what is tried
        os.kill(pid, signal.SIGKILL)
        was_cut = runner.end() is None
        with self.store("alpha"):
            self.assertEqual(rows.fetch("PRAGMA integrity_check"), [("ok",)], job.name)
            found = log.verify()
            self.assertTrue(found.ok, f"{job.name}: {found.describe()}")
            self.assertEqual((index_problem(), models_behind()), ("", {}), job.name)
        return was_cut

    def rounds(self) -> int:
        self._rounds = getattr(self, "_rounds", -1) + 1
        return self._rounds
