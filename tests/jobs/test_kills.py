from __future__ import annotations

import os
import random
import signal
import time

from django.test import tag

from memories.search.index import index_problem
from memoryhub.core import log
from memoryhub.core.jobs import Job, defined_jobs
from memoryhub.core.stores import rows
from memoryhub.ops import jobs  # noqa: F401 - defines all jobs
from memoryhub.ops.jobs.status import models_behind
from tests.jobs.processes import JobProcessesTestCase, Runner

# For each job
KILLS = int(os.environ.get("MEMORY_HUB_TEST_JOB_KILLS", "1"))


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
