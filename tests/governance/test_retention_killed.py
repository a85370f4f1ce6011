from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

from django.test import tag

from governance.models import RetentionRun
from governance.retention.run import run_retention
from governance.retention.schemas import RetentionRunRequest
from memoryhub.core import clock, log
from tests.databases import at_home
from tests.governance.retaining import RetentionTestCase, documents_with
from tests.home import UNMEASURED
from tests.support import forget_all_stores

DEADLINE_SECONDS = 120
RUN = """
import django, sys
django.setup()
from governance.retention import run
from governance.retention.schemas import RetentionPlanRequest, RetentionRunRequest
from governance.retention.selectors import plan_retention
from memoryhub.core import clock
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
run.BATCH = 10
now = clock.from_text(sys.argv[1])
with use_store(project_store("alpha")), use_origin(actor="ada"):
    digest = plan_retention(command=RetentionPlanRequest(now=now)).digest
    run.run_retention(command=RetentionRunRequest(now=now, digest=digest))
"""


@tag("attack")
class KilledTests(RetentionTestCase):
    def setUp(self) -> None:
        super().setUp()
        with log.transaction():
            for number in range(24):
                self.session(f"s-{number}", *[f"message {number}.{number}" for number in range(30)], days=400 - number)
            for number in range(60):
                self.memory(f"memory {number}", days=300, deleted=200 - 3 * number)

    def test_the_end_is_the_same(self):
        twin = self.home.with_name(f"{self.home.name}-twin")
        self.addCleanup(shutil.rmtree, twin, ignore_errors=True)
        subprocess.run(["cp", "-R", self.home, twin], check=True)  # to close a file here would drop this one's locks
        self.kill(self.spawn())
        self.assertEqual(RetentionRun.objects.filter(ran_at__isnull=True).count(), 1)
        taken = len(self.erased())
        again = self.spawn()
        self.assertEqual(again.wait(DEADLINE_SECONDS), 0)
        self.assertLess(taken, len(self.erased()))
        ended = self.end()
        self.assert_sound()
        with self.home_at(twin), self.store("alpha", actor="ada"):
            plan = self.plan()
            run_retention(command=RetentionRunRequest(digest=plan.digest))
            self.assertEqual(self.end(), ended)
            self.assertEqual(len(self.erased()), plan.events)

    def spawn(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **UNMEASURED, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        command = [sys.executable, "-c", RUN, clock.to_text(clock.now())]
        return subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[2])

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + DEADLINE_SECONDS
        while len(self.erased()) < 100:
            self.assertIsNone(process.poll(), "it ended before it could be killed")
            self.assertLess(time.monotonic(), until, "it took nothing")
        process.kill()
        process.wait()

    def home_at(self, folder: Path) -> mock._patch_dict:
        forget_all_stores()
        return at_home(folder)

    def end(self) -> tuple[object, ...]:
        run = RetentionRun.objects.get()
        tables = {name: found for name, found in log.table_digests().items() if name != "governance_retentionrun"}
        documents = documents_with("message", "memory")
        return self.erased(), run.report, run.events, run.bytes, run.digest, tables, documents
