"""Runs of jobs: their results, what is due and queued, and what each job does."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from unittest import mock

from django.core.management import call_command
from django.test import tag
from django_q.brokers import get_broker
from django_q.models import OrmQ, Schedule
from django_q.scheduler import scheduler

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import clock
from memoryhub.core import jobs as core_jobs
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.jobs import Every, Job, Over, Run, define_job, defined_jobs, find_job
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import GLOBAL_STORE, project_store, use_store
from memoryhub.models import JobRun, StoreCheck
from memoryhub.ops import jobs
from memoryhub.ops.jobs import run_job, running
from memoryhub.ops.jobs.running import JobTarget
from memoryhub.ops.jobs.schedules import enqueue
from memoryhub.ops.jobs.status import ask_worker, status_of_job
from sessions_app.models import Session, Turn
from sessions_app.schemas import SessionStart, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.turns import begin_turn
from tests.support import HubTestCase, forget_all_stores


class JobTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(core_jobs._jobs))
        for project in ("alpha", "beta"):
            with self.store(project):
                pass

    def define(self, work: core_jobs.Work, *, over: Over = Over.STORES) -> Job:
        return define_job("try this", does="Tries.", work=work, every=Every.DAY, over=over, cap=30)


@tag("backend")
class RunningTests(JobTestCase):
    def test_a_run_is_kept_with_how_far_it_came_and_by_whom_it_was_asked_for(self) -> None:
        def work(run: Run) -> str:
            run.report(3, 4)
            return "three of four done"

        outcomes = run_job(job=self.define(work), asked_by="ada")
        results = [(outcome.target.title, outcome.result) for outcome in outcomes]
        self.assertEqual(results, [("project alpha", "ok"), ("project beta", "ok")])
        row = JobRun.objects.get(store="store:project:alpha")
        asked_by, _, _ = row.asked_by.partition(" on ")  # a machine, where several have one database
        stored = (row.job, row.result, row.done, row.total, row.message, asked_by, row.pid, row.idle)
        self.assertEqual(stored, ("try this", "ok", 3, 4, "three of four done", "ada", os.getpid(), False))

    def test_one_store_that_fails_stops_no_other_and_says_why(self) -> None:
        def work(run: Run) -> str:
            if run.store == project_store("alpha"):
                raise Unavailable("the disk is full")
            return "done"

        job = self.define(work)
        with self.assertLogs("memoryhub.ops.jobs", "WARNING"):
            outcomes = run_job(job=job, asked_by="ada")
        results = [(outcome.result, outcome.message) for outcome in outcomes]
        self.assertEqual(results, [("failed", "the disk is full"), ("ok", "done")])
        status = status_of_job(job)
        self.assertEqual(status.result, "failed")
        self.assertEqual([failure.target.title for failure in status.failures], ["project alpha"])

    def test_a_second_run_over_the_same_store_says_who_is_at_it_and_does_nothing(self) -> None:
        begun, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)
        started: list[Run] = []

        def work(run: Run) -> str:
            started.append(run)
            begun.set()
            go.wait(60)
            return "done"

        job, hub = self.define(work, over=Over.HUB), JobTarget()
        with mock.patch("memoryhub.ops.jobs.running.record_run"):  # a thread has no place in this test's transaction
            thread = threading.Thread(target=run_job, kwargs={"job": job, "targets": [hub], "asked_by": "ada"})
            thread.start()
            self.assertTrue(begun.wait(60))
            (second,) = run_job(job=job, targets=[hub], asked_by="bob")
            self.assertEqual((status_of_job(job).result, len(started)), ("running", 1))
            go.set()
            thread.join(60)
        self.assertEqual(second.result, "busy")
        sentence = rf"job 'try this' for the hub is already running since .* UTC \(pid {os.getpid()}\)"
        self.assertRegex(second.message, sentence)
        self.assertEqual(JobRun.objects.count(), 0)

    def test_what_found_nothing_to_do_is_kept_once_and_of_the_others_the_last_twenty(self) -> None:
        answers = iter([""] * 6 + ["done"] * (running.KEPT + 5))
        job = self.define(lambda _: next(answers), over=Over.HUB)
        for _ in range(running.KEPT + 11):
            run_job(job=job, asked_by="ada")
        self.assertEqual(JobRun.objects.filter(idle=True).count(), 1)
        self.assertEqual(JobRun.objects.filter(idle=False).count(), running.KEPT)

    def test_a_job_may_be_named_with_hyphens_and_a_wrong_name_is_told_with_the_right_ones(self) -> None:
        self.assertEqual(find_job("Verify-Stores"), find_job("verify stores"))
        with self.assertRaisesRegex(Invalid, "there is no job 'nonsense'") as caught:
            find_job("nonsense")
        self.assertIn("verify-stores", caught.exception.data["choices"])


class DueTests(JobTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.counted: list[str] = []
        self.job = self.define(self.count)
        Schedule.objects.all().delete()
        jobs.install_schedules()

    def count(self, run: Run) -> str:
        assert run.store
        self.counted.append(run.store.name)
        return "counted"

    def work_off_queue(self) -> int:
        tasks = list(OrmQ.objects.order_by("pk"))
        for task in tasks:
            jobs.run_scheduled(*task.task["args"], **{k: v for k, v in task.task["kwargs"].items() if k != "q_options"})
            task.delete()
        return len(tasks)

    @tag("backend")
    def test_three_days_off_are_one_run_and_the_next_is_due_at_its_usual_time(self) -> None:
        Schedule.objects.exclude(name="try this").delete()
        missed = clock.now() - timedelta(days=3, hours=1)
        Schedule.objects.update(next_run=missed)
        broker = get_broker()
        # It would close the connections, which are in this test's transaction
        with mock.patch("django_q.scheduler.close_old_django_connections"):
            for _ in range(3):
                scheduler(broker=broker)
        self.assertEqual((self.work_off_queue(), self.counted), (1, ["alpha", "beta"]))
        self.assertEqual(Schedule.objects.get().next_run, missed + timedelta(days=4))

    def test_what_was_queued_twice_is_done_once_and_again_when_it_is_due_again(self) -> None:
        due = clock.now()
        for _ in range(3):
            jobs.run_scheduled("try this", due=due.isoformat())
        self.assertEqual(self.counted, ["alpha", "beta"])
        jobs.run_scheduled("try this", due=(clock.now() + timedelta(milliseconds=1)).isoformat())
        self.assertEqual(len(self.counted), 4)

    def test_a_store_over_which_it_died_three_times_is_left_until_it_is_due_again(self) -> None:
        due = clock.now()
        run = {"job": "try this", "store": "store:project:alpha", "result": "interrupted"}
        for pid in range(running.ATTEMPTS):
            JobRun.objects.create(**run, started_at=due, ended_at=due, pid=pid)
        jobs.run_scheduled("try this", due=due.isoformat())
        self.assertEqual(self.counted, ["beta"])

    def test_what_the_time_of_a_pass_does_not_suffice_for_is_queued_again(self) -> None:
        with mock.patch("memoryhub.ops.jobs.running.PASS_SECONDS", -1.0):
            jobs.run_scheduled("try this", due=clock.now().isoformat())
        self.assertEqual((self.counted, OrmQ.objects.count()), ([], 1))
        self.work_off_queue()
        self.assertEqual(self.counted, ["alpha", "beta"])

    def test_a_run_now_is_queued_for_a_worker_that_lives_and_refused_with_the_way_where_there_is_none(self) -> None:
        with self.assertRaisesRegex(Unavailable, "no worker is running.*memory-hub jobs try-this"):
            ask_worker(job=self.job, alias=None, asked_by="ada")
        enqueue(job=self.job, targets=[JobTarget(project_store("beta"))], asked_by="ada")
        self.assertEqual([store.result for store in status_of_job(self.job).stores], ["never", "queued"])
        self.work_off_queue()
        self.assertEqual((self.counted, JobRun.objects.get().asked_by), (["beta"], "ada"))

    def test_what_a_dead_worker_held_is_given_back(self) -> None:
        enqueue(job=self.job, targets=[JobTarget(project_store("beta"))], asked_by="ada")
        self.assertEqual(len(get_broker().dequeue()), 1)
        self.assertFalse(OrmQ.objects.filter(lock__lte=clock.now()).exists())
        jobs.release_held()
        self.assertTrue(OrmQ.objects.filter(lock__lte=clock.now()).exists())


class ScheduleTests(HubTestCase):
    def test_a_migration_of_the_queue_installs_a_schedule_for_every_job_that_has_a_time(self) -> None:
        Schedule.objects.all().delete()
        call_command("migrate", database="jobs", verbosity=0, interactive=False)
        types = {Every.MINUTE: Schedule.MINUTES, Every.HOUR: Schedule.HOURLY, Every.DAY: Schedule.DAILY}
        timed = {job.name: types[job.every] for job in defined_jobs() if job.every is not Every.DEMAND}
        self.assertEqual(dict(Schedule.objects.values_list("name", "schedule_type")), timed)

    def test_what_a_user_changed_stays_what_an_older_hub_made_is_brought_up_and_what_is_no_job_goes(self) -> None:
        at, run_scheduled = clock.now() + timedelta(hours=7), "memoryhub.ops.jobs.run_scheduled"
        backup, verify = (Schedule.objects.filter(name=name) for name in ("backup", "verify stores"))
        backup.update(next_run=at, schedule_type=Schedule.WEEKLY)
        verify.update(func="memoryhub.ops.jobs.verify_stores", args=None, next_run=at)
        Schedule.objects.create(name="gone", func=run_scheduled, schedule_type=Schedule.DAILY)
        Schedule.objects.create(name="mine", func="math.sqrt", schedule_type=Schedule.DAILY)
        jobs.install_schedules()
        self.assertEqual(backup.values_list("next_run", "schedule_type").get(), (at, Schedule.WEEKLY))
        self.assertEqual(verify.values_list("func", "args", "next_run").get(), (run_scheduled, "'verify stores'", at))
        self.assertFalse(Schedule.objects.filter(name="gone").exists())
        self.assertTrue(Schedule.objects.filter(name="mine").exists())


BOTH = ("project alpha", "project beta")


def run(name: str) -> dict[str, str]:
    outcomes = run_job(job=find_job(name), asked_by="ada")
    return {outcome.target.title: outcome.message for outcome in outcomes if outcome.message}


class VerifyTests(JobTestCase):
    def test_every_store_is_checked_and_each_check_replaces_the_one_before(self) -> None:
        with use_store(GLOBAL_STORE, create=True):
            pass
        for number in (1, 2):
            with self.store("alpha"):
                write_memory(command=MemoryWrite(title=f"t{number}", content="c"))
            self.assertEqual(list(run("verify stores")), [*BOTH, "the global scope"])
            check = StoreCheck.objects.get(store="store:project:alpha")
            self.assertEqual((check.ok, check.events), (True, number))

    def test_a_store_that_cannot_be_read_does_not_stop_the_others(self) -> None:
        forget_all_stores()
        path_of(project_store("alpha")).write_bytes(b"not a database!!" * 1000)
        with self.assertLogs("memoryhub.ops.jobs", "WARNING"):
            run("verify stores")
        checks = dict(StoreCheck.objects.values_list("store", "ok"))
        self.assertEqual(checks, {"store:project:alpha": False, "store:project:beta": True})


class SessionJobsTests(JobTestCase):
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
        self.assertEqual(run("expire turns"), dict.fromkeys(BOTH, "1 turn left open"))
        self.assertEqual([self.states(name) for name in ("alpha", "beta")], [("active", "incomplete")] * 2)
        self.assertEqual(run("expire turns"), {})

    def test_sessions_end_in_every_project_and_say_who_ended_them(self) -> None:
        self.assertEqual(run("end idle sessions"), dict.fromkeys(BOTH, "1 session ended"))
        self.assertEqual(self.states("beta")[0], "completed")
        with self.store("alpha"):
            last = RawEvent.objects.order_by("position").last()
            assert last
            self.assertEqual((last.source, last.actor), ("job", "end idle sessions"))
        self.assertEqual(run("end idle sessions"), {})
