"""Real processes that run jobs: the worker of the server, and kills at any point of any job."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta
from itertools import count
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
from memoryhub.core.stores import rows
from memoryhub.models import JobRun
from memoryhub.ops import jobs  # noqa: F401 - defines all jobs
from memoryhub.ops.jobs.status import models_behind, status_of_job
from memoryhub.ops.serving.worker import MonotonicEvent
from sessions_app.schemas import SessionStart, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.turns import begin_turn
from tests.databases import variables_of
from tests.forks import Fork, run_program
from tests.support import HubTestCase
from tests.web.server import Server, migrated_home, poll, serving, temporary_home

# Dies at the call of a function whose number is the second argument, as by a kill
_RUN = """
import json, os, signal, sys
from memoryhub.core.jobs import find_job
from memoryhub.ops import jobs
fatal, calls = int(sys.argv[2]), 0
def count_call(frame, event, argument):
    global calls
    calls += 1
    if calls == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
job = find_job(sys.argv[1])
sys.setprofile(count_call)
runs = jobs.run_job(job=job, asked_by="ada")
sys.setprofile(None)
print(json.dumps({"calls": calls, "messages": [each.message for each in runs]}))
"""
_NEVER = "0"
_STATUSES = """
import json
from memoryhub.ops.jobs.status import job_statuses
print(json.dumps({each.job.name: [one.last and one.last.result for one in each.stores] for each in job_statuses()}))
"""


class JobProcessesTestCase(HubTestCase):
    """A home whose hub.db and queue are files of its own, and work for every job."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("hub.db", "jobs.db"):
            shutil.copyfile(migrated_home() / name, self.home / name)

    def begin(self, program: str, *arguments: str) -> Fork:
        return Fork(program, *arguments, environment={"MEMORY_HUB_LOG": "CRITICAL"})

    def run_python(self, program: str, *arguments: str) -> Any:
        output, errors = self.begin(program, *arguments).communicate()
        self.assertTrue(output, errors)
        return json.loads(output)

    def make_work(self, project: str, round_: int = 0, *, memories: int = 12) -> None:
        titles = [f"{round_}-{number}" for number in range(memories)]
        with self.store(project), clock.frozen(clock.now() - timedelta(days=40 - round_ % 5)):
            written = write_memories(commands=[MemoryWrite(title=title, content=f"text {title}") for title in titles])
            ids = [memory.id for memory in written]
            for number in range(2):
                start_session(command=SessionStart(session_id=f"s{round_}-{number}"))
                begin_turn(command=TurnBegin(session_id=f"s{round_}-{number}", turn_id=f"t{round_}"))
            for memory_id in ids[:4]:
                delete_memory(command=MemoryTouch(id=memory_id))
        with self.store(project, source="mcp"):
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
from memoryhub.ops.jobs.running import JobTarget
from memoryhub.ops.jobs.schedules import enqueue
enqueue(job=find_job("rebuild"), targets=[JobTarget(project_store("alpha"))], asked_by="ada")
"""


def query(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path, timeout=30)) as database:
        return database.execute(sql).fetchall()


@tag("process")
class WorkerTests(SimpleTestCase):
    def test_three_days_off_are_one_run_of_each_job_and_a_killed_run_is_done_again(self) -> None:
        with temporary_home() as home:
            notes = home.parent / "notes"
            notes.mkdir()
            text = "\n".join(f"# Note {number}\n\nText of note {number}.\n" for number in range(800))
            (notes / "notes.md").write_text(text)
            code, output, errors = run_program(_FILL_AND_MISS.format(notes=str(notes)), **variables_of(home))
            self.assertEqual((code, output.strip()), (0, "0"), errors)
            with serving(home=home) as server:
                self.kill_a_rebuild(home, server)
                self.assert_missed_are_done_once(home)

    def assert_missed_are_done_once(self, home: Path) -> None:
        daily = ("verify stores", "backup", "prune use statistics")
        queued = "SELECT count(*) FROM django_q_ormq"
        poll(lambda: query(home / "jobs.db", queued) == [(0,)], what="an empty queue")
        done = [job for job, store, _ in self.runs(home) if store == "store:project:alpha" and job in daily]
        self.assertEqual(sorted(done), sorted(daily))

    def kill_a_rebuild(self, home: Path, server: Server) -> None:
        lock = home / "locks" / "rebuild.project-alpha"
        begun = poll(lambda: lock.exists() and lock.read_bytes().strip(b" \0"), what="the beginning of the rebuild")
        pid = int(begun.partition(b'"pid": ')[2].partition(b",")[0])
        self.assertIn(pid, server.worker_pids())
        os.kill(pid, signal.SIGKILL)

        def results() -> list[str]:
            return [result for job, _, result in self.runs(home) if job == "rebuild"]

        poll(lambda: len(results()) > 1, what="the end of the run that follows")
        self.assertEqual(results(), ["interrupted", "ok"])

    def runs(self, home: Path) -> list[Any]:
        return query(home / "hub.db", "SELECT job, store, result FROM memoryhub_jobrun ORDER BY id")


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
        self.make_work("alpha", memories=300)
        process = self.begin(_RUN, "rebuild", _NEVER)
        lock = self.home / "locks" / "rebuild.project-alpha"
        poll(lambda: lock.exists() and lock.read_bytes().strip(), what="the beginning of the run")
        process.kill()
        process.communicate()
        for _ in range(2):
            status = status_of_job(find_job("rebuild"))
            self.assertEqual((status.result, status.now), ("interrupted", None))
            row = JobRun.objects.get(job="rebuild")
            self.assertEqual((row.pid, row.message), (process.pid, "its process ended during the run"))


@tag("attack")
class KilledJobsTests(JobProcessesTestCase):
    rounds = count()

    def test_a_kill_at_any_point_of_any_job_leaves_all_stores_whole_and_the_next_run_completes(self) -> None:
        cut = {job.name: self.kill_again_and_again(job) for job in defined_jobs()}
        self.assertGreater(sum(cut.values()), 0, cut)
        ended = {name: set(results) for name, results in self.run_python(_STATUSES).items()}
        completed = {name: {"ok"} for name in cut} | {"embed texts": {"failed"}}  # nobody holds a model here
        self.assertEqual(ended, completed)
        self.assertEqual([path.name for path in self.home.rglob("*.draft")], [])
        with self.store("alpha"):
            self.assert_rebuilds()

    def kill_again_and_again(self, job: Job) -> int:
        for _ in range(2):  # the first run of some jobs has more work
            self.make_work("alpha", next(self.rounds))
            calls = self.run_python(_RUN, job.name, _NEVER)["calls"]
        cut = 0
        for _ in range(KILLS):
            self.make_work("alpha", next(self.rounds))
            cut += self.kill_once(job, at=random.randint(1, calls))
        for message in self.run_python(_RUN, job.name, _NEVER)["messages"]:
            self.assertNotIn("differed", message)
        return cut

    def kill_once(self, job: Job, *, at: int) -> bool:
        process = self.begin(_RUN, job.name, str(at))
        was_cut = not process.communicate()[0]
        with self.store("alpha"):
            self.assertEqual(rows.fetch("PRAGMA integrity_check"), [("ok",)], job.name)
            found = log.verify()
            self.assertTrue(found.ok, f"{job.name}: {found.describe()}")
            self.assertEqual((index_problem(), models_behind()), ("", {}), job.name)
        return was_cut
