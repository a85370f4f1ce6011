from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import SimpleTestCase, tag

from memoryhub.ops.serving.worker import MonotonicEvent
from tests.web.server import Server, poll, run, serving, temporary_home

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
