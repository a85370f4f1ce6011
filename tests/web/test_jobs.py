"""What the worker does by itself."""

from __future__ import annotations

from django_q.models import Schedule

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub import jobs
from memoryhub.core.stores import GLOBAL_STORE, project_store, use_store
from memoryhub.models import StoreCheck
from tests.support import HubTestCase, forget_all_stores


class VerifyTests(HubTestCase):
    def test_every_store_is_checked_and_the_finding_kept(self) -> None:
        for project in ("alpha", "beta"):
            with self.store(project):
                write_memory(command=MemoryWrite(title="t", content=project))
        with use_store(GLOBAL_STORE, create=True):
            pass
        findings = jobs.verify_stores()
        self.assertEqual(list(findings), ["store:project:alpha", "store:project:beta", "store:global:global"])
        check = StoreCheck.objects.get(store="store:project:alpha")
        self.assertEqual((check.ok, check.events), (True, 1))

    def test_a_store_that_cannot_be_read_does_not_stop_the_others(self) -> None:
        for project in ("alpha", "beta"):
            with self.store(project):
                pass
        forget_all_stores()
        project_store("alpha").path.write_bytes(b"not a database!!" * 1000)
        jobs.verify_stores()
        checks = {check.store: check.ok for check in StoreCheck.objects.all()}
        self.assertEqual(checks, {"store:project:alpha": False, "store:project:beta": True})

    def test_a_second_check_replaces_the_first(self) -> None:
        with self.store("alpha"):
            pass
        jobs.verify_stores()
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="t", content="c"))
        jobs.verify_stores()
        self.assertEqual(StoreCheck.objects.get().events, 1)


class ScheduleTests(HubTestCase):
    def test_schedules_are_installed_once_and_keep_their_times(self) -> None:
        jobs.install_schedules()
        first = Schedule.objects.get(name="verify stores")
        jobs.install_schedules()
        self.assertEqual(Schedule.objects.get(name="verify stores").next_run, first.next_run)
        self.assertEqual((first.func, first.schedule_type), ("memoryhub.jobs.verify_stores", Schedule.DAILY))
        self.assertEqual(first._state.db, "jobs")
