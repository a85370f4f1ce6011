"""What the worker does by itself."""

from __future__ import annotations

from datetime import timedelta

from django.utils.module_loading import import_string
from django_q.brokers import get_broker
from django_q.models import OrmQ, Schedule
from django_q.scheduler import scheduler

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub import jobs
from memoryhub.core import clock
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import GLOBAL_STORE, project_store, use_store
from memoryhub.models import StoreCheck
from sessions_app.models import Session, Turn
from sessions_app.schemas import SessionStart, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.turns import begin_turn
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

    def test_every_job_has_a_time_and_can_be_called(self) -> None:
        jobs.install_schedules()
        found = {each.name: (each.schedule_type, each.minutes) for each in Schedule.objects.all()}
        wanted = {
            "embed texts": (Schedule.MINUTES, 1),
            "expire turns": (Schedule.MINUTES, 1),
            "end idle sessions": (Schedule.HOURLY, None),
            "count uses": (Schedule.HOURLY, None),
            "fold counters": (Schedule.HOURLY, None),
            "verify stores": (Schedule.DAILY, None),
        }
        self.assertEqual(found, wanted)
        for schedule in Schedule.objects.all():
            import_string(schedule.func)()

    def test_what_was_missed_is_caught_up_once(self) -> None:
        jobs.install_schedules()
        Schedule.objects.exclude(name="expire turns").delete()
        Schedule.objects.update(next_run=clock.now() - timedelta(days=3))
        broker = get_broker()
        for _ in range(3):
            scheduler(broker=broker)
        self.assertEqual(OrmQ.objects.count(), 1)
        self.assertGreater(Schedule.objects.get().next_run, clock.now())


class SessionJobsTests(HubTestCase):
    """Sessions and turns that somebody left open."""

    def setUp(self) -> None:
        super().setUp()
        with clock.frozen(clock.now() - timedelta(days=2)):
            for project in ("alpha", "beta"):
                with self.store(project):
                    start_session(command=SessionStart(session_id="s"))
                    begin_turn(command=TurnBegin(session_id="s", turn_id="t"))

    def states(self, project: str) -> tuple[str, str]:
        with self.store(project):
            return Session.objects.get().status, Turn.objects.get().status

    def test_turns_expire_in_every_project(self) -> None:
        self.assertEqual(jobs.expire_open_turns(), {"alpha": 1, "beta": 1})
        self.assertEqual([self.states(each) for each in ("alpha", "beta")], [("active", "incomplete")] * 2)
        self.assertEqual(jobs.expire_open_turns(), {})

    def test_sessions_end_in_every_project_and_say_who_ended_them(self) -> None:
        self.assertEqual(jobs.end_sessions(), {"alpha": 1, "beta": 1})
        self.assertEqual(self.states("beta")[0], "completed")
        with self.store("alpha"):
            last = RawEvent.objects.order_by("position").last()
            assert last
            self.assertEqual((last.source, last.actor), ("job", "end_idle_sessions"))
        self.assertEqual(jobs.end_sessions(), {})

    def test_a_store_that_cannot_be_read_stops_no_other(self) -> None:
        forget_all_stores()
        project_store("alpha").path.write_bytes(b"not a database!!" * 1000)
        found = jobs.expire_open_turns()
        self.assertIn("memory database unavailable", str(found["alpha"]))
        self.assertEqual((found["beta"], self.states("beta")[1]), (1, "incomplete"))
