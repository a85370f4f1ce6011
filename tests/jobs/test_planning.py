"""When jobs run, who may change that, and the page of jobs."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from django.test import Client, SimpleTestCase
from django_q.models import OrmQ, Schedule
from pydantic import ValidationError
from selenium.webdriver.common.keys import Keys

from memoryhub.core import clock
from memoryhub.core.errors import Forbidden, Invalid
from memoryhub.core.jobs import Every, defined_jobs, find_job
from memoryhub.core.permissions import ROLES, Grant, use_grant
from memoryhub.core.stores.store import project_store
from memoryhub.models import JobRun
from memoryhub.ops import health, jobs
from memoryhub.ops.jobs import run_job, running
from memoryhub.ops.jobs.running import JobTarget
from memoryhub.ops.jobs.schedules import HOWS, JobPlan, SchedulePlan, change_plan, default_of, plans
from memoryhub.ops.jobs.status import status_of_job
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.web.signin import ensure_owner
from tests.admin.browser import NARROW, BrowserTestCase
from tests.support import HubTestCase
from tests.web.server import ROOT

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
DUE = NOW + timedelta(hours=5)


class PlanTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        Schedule.objects.all().delete()
        jobs.install_schedules()
        Schedule.objects.update(next_run=DUE)
        self.enterContext(clock.frozen(NOW))
        with self.store("alpha"):
            pass

    def plan(self, job: str = "backup") -> SchedulePlan:
        return plans()[job]


class ServiceTests(PlanTestCase):
    def change(self, job: str = "backup", **values: str) -> SchedulePlan:
        return change_plan(command=JobPlan.model_validate({"job": job, **values}))

    def test_each_job_begins_as_its_definition_says(self) -> None:
        for job in defined_jobs():
            if job.every is not Every.DEMAND:
                self.assertEqual((self.plan(job.name).every, default_of(job) in HOWS), (default_of(job), True))

    def test_how_often_and_at_what_time_are_kept_over_migrations_and_restarts(self) -> None:
        soon = timedelta(minutes=1)
        for values, described, after in (
            ({"every": "day", "at": "03:00"}, "every day at 03:00 UTC", timedelta(hours=15)),
            ({"at": "13:05"}, "every day at 13:05 UTC", timedelta(hours=1, minutes=5)),
            ({"every": "week", "at": "12:00"}, "every week at 12:00 UTC", timedelta(days=1)),
            ({"every": "minute"}, "every minute", soon),
            ({"every": "15-minutes"}, "every 15 minutes", soon),
            ({"every": "6-hours"}, "every 6 hours", soon),
            ({"every": "off"}, "switched off", None),
            ({"every": "default"}, "every day at 12:01 UTC", soon),
        ):
            with self.subTest(values=values):
                self.assertEqual(self.change(**values).described, described)
                jobs.install_schedules()
                next_run = NOW + after if after else None
                self.assertEqual((self.plan().described, self.plan().next_run), (described, next_run))
        with self.assertRaises(ValidationError):
            self.change(at="13:5")

    def test_a_row_that_is_gone_is_made_and_one_set_by_hand_is_told_and_taken_over(self) -> None:
        Schedule.objects.filter(name="backup").delete()
        self.assertEqual(self.change(every="hour").every, "hour")
        Schedule.objects.filter(name="backup").update(schedule_type=Schedule.MONTHLY)
        self.assertEqual(status_of_job(find_job("backup")).runs, "as set by hand")
        with self.assertRaisesRegex(Invalid, "also choose every day or every week"):
            self.change(at="03:00")
        self.assertEqual(self.change(every="week").every, "week")

    def test_what_makes_no_sense_is_refused_and_changes_nothing(self) -> None:
        before = plans()
        for job, values, sentence in (
            ("rebuild", {"every": "day"}, "'rebuild' runs only on demand"),
            ("wipe", {"at": "03:00"}, "job 'wipe' runs every hour, which has no time of day"),
            ("nonsense", {"every": "day"}, "there is no job 'nonsense'"),
        ):
            with self.subTest(job=job), self.assertRaisesRegex(Invalid, sentence):
                self.change(job, **values)
        with use_grant(Grant(ROLES["reviewer"])), self.assertRaises(Forbidden):
            self.change(every="off")
        self.assertEqual(plans(), before)

    def test_one_that_is_off_is_not_late(self) -> None:
        self.change(every="off")
        Schedule.objects.filter(name="backup").update(next_run=NOW - timedelta(days=1))
        with mock.patch.object(health, "_STARTED", time.monotonic() - 3600):
            self.assertEqual(health.check().findings["worker"], "ok")


class CommandTests(PlanTestCase):
    def run_jobs(self, *words: str) -> str:
        out = StringIO()
        call_command("jobs", *words, stdout=out)
        return out.getvalue().strip()

    def test_the_command_changes_and_lists(self) -> None:
        said = self.run_jobs("backup", "--every", "day", "--at", "03:00")
        self.assertEqual(said, "backup: every day at 03:00 UTC; next run 2026-11-21 03:00 UTC")
        self.assertRegex(self.run_jobs(), r"backup +every day at 03:00 UTC .* 2026-11-21 03:00")
        self.assertEqual(self.run_jobs("retention", "--off"), "retention: switched off")
        self.assertRegex(self.run_jobs(), r"retention +every day .* off")
        self.assertIn("retention: every day at 17:00 UTC", self.run_jobs("retention", "--default"))

    def test_what_is_wrong_is_one_sentence(self) -> None:
        for words, sentence in (
            (("backup", "--at", "24:00"), "must be a time of day in UTC from 00:00 to 23:59, such as 03:00"),
            (("backup", "--every", "fortnight"), "'every' must be one of 'minute', '15-minutes'"),
            (("backup", "--every", "hour", "--at", "03:00"), "'at' is for every day or week, not for 'hour'"),
            (("backup", "--off", "--project", "alpha"), "without a store: its schedule is the same for all stores"),
            (("--off",), "give the name of a job, such as backup, without a store"),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(CommandError, sentence):
                self.run_jobs(*words)


class PageTests(PlanTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.client.force_login(ensure_owner())

    def send(self, **form: str) -> str:
        return self.client.post("/jobs/plan", form, follow=True).content.decode()

    def test_an_owner_changes_when_a_job_runs(self) -> None:
        page = self.send(job="backup", every="day", at="13:30")
        for text in (
            "The job backup runs every day at 13:30 UTC; its next run is in 91 minutes.",
            "<dd>every day at 13:30 UTC</dd>",
            'id="at-backup" value="13:30"',
        ):
            self.assertIn(text, page)
        page = self.send(job="backup", every="hour", at="13:30")  # the field keeps its time
        self.assertIn("The job backup runs every hour; its next run is in 61 minutes.", page)
        self.assertIn("The job backup is switched off.", self.send(job="backup", every="off"))
        self.assertNotIn('id="plan-rebuild"', page)

    def test_what_is_wrong_is_shown_and_changes_nothing(self) -> None:
        before = plans()
        for form, sentence in (
            ({"job": "backup", "every": "day", "at": "25:00"}, "such as 03:00."),
            ({"job": "backup"}, "Choose an interval"),
            ({"job": "rebuild", "every": "day"}, "runs only on demand"),
            ({}, "is required"),
        ):
            with self.subTest(form=form):
                self.assertIn(sentence, self.send(**form))
        self.assertEqual(plans(), before)

    def test_who_does_not_administer_sees_no_form(self) -> None:
        self.assertContains(self.client.get("/jobs"), "Edit schedule<span")
        self.client.force_login(add_person(command=PersonAdd(name="rea", role="reviewer")))
        self.assertNotContains(self.client.get("/jobs"), "Edit schedule<span")

    def test_a_post_of_another_site_and_one_without_a_session_change_nothing(self) -> None:
        before = plans()
        strict = Client(enforce_csrf_checks=True, headers={"host": "localhost"})
        strict.force_login(ensure_owner())
        for client, status in ((strict, 403), (Client(headers={"host": "localhost"}), 302)):
            self.assertEqual(client.post("/jobs/plan", {"job": "backup", "every": "off"}).status_code, status)
        self.assertEqual(plans(), before)


class JobsPageTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        for project in ("alpha", "beta"):
            with self.store(project):
                pass
        self.client.force_login(ensure_owner())

    def page(self) -> str:
        return self.client.get("/jobs").content.decode()

    def ask(self, **form: str) -> str:
        return self.client.post("/jobs/run", form, follow=True).content.decode()

    def test_every_job_is_there_with_what_it_does(self) -> None:
        page = self.page()
        for job in defined_jobs():
            self.assertInHTML(f'<p class="job-does">{job.does.replace(chr(39), "&#x27;")}</p>', page)

    def test_how_a_job_ended_is_shown_and_how_far_one_is_that_runs(self) -> None:
        run_job(job=find_job("verify stores"), asked_by="ada")
        JobRun.objects.filter(store="store:project:beta").update(result="failed", message="the chain <broke>")
        page = self.page()
        self.assertIn("Project beta: the chain &lt;broke&gt;", page)
        with running.hold_lease(find_job("rebuild"), JobTarget(project_store("alpha")), asked_by="ada") as held:
            held.report(250, 1000)
            page = self.page()
        bar = '<progress class="long-progress" max="1000" value="250" aria-label="Progress of rebuild"></progress>'
        self.assertInHTML(bar, page)

    def test_without_a_worker_nothing_is_queued_and_the_way_is_said(self) -> None:
        self.assertIn("No worker is running", self.page())
        self.assertIn("run `memory-hub jobs backup` in a terminal", self.ask(job="backup"))
        self.assertFalse(OrmQ.objects.exists())

    def test_a_run_is_queued_for_a_worker_once(self) -> None:
        self.a_worker_lives()
        for job, store, sentence in (
            ("backup", "store:project:alpha", "Backup of project alpha is queued"),
            ("backup", "store:project:alpha", "already"),
            ("nonsense", "", "There is no job"),
            ("backup", "store:project:gamma", "does not run over that store"),
        ):
            self.assertIn(sentence, self.ask(job=job, store=store))
        options: dict[str, Any] = OrmQ.objects.get().task["kwargs"]
        self.assertEqual(options["aliases"], ["store:project:alpha"])
        self.assertEqual(options["asked_by"], ensure_owner().username)

    def test_who_is_not_signed_in_is_told_how_and_nothing_is_queued(self) -> None:
        self.a_worker_lives()
        self.client.logout()
        self.assertEqual(self.client.get("/jobs").status_code, 302)
        self.ask(job="backup")
        self.assertFalse(OrmQ.objects.exists())
        self.assertEqual(self.client.get("/jobs/run").status_code, 405)

    def a_worker_lives(self) -> None:
        self.addCleanup(running.announce_worker().close)


class BrowserTests(BrowserTestCase):
    has_own_server = True

    def test_jobs_are_read_and_asked_for_by_keyboard_and_fit_a_narrow_screen(self) -> None:
        self.browser.get(f"{self.server.address}/jobs")
        self.tab_to("Run now the job backup")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("memory-hub jobs backup", within=".messagelist")  # no worker here: it says how
        self.tab_to("1 store and the hub of backup", most=60)
        self.press(Keys.SPACE)
        self.see(f"Project {self.project}", within="#stores-backup")
        self.tab_to("Edit schedule of retention")
        self.press(Keys.SPACE, Keys.TAB, "every w")
        self.tab_to("at")
        self.press("04:30")  # over the time that is there, which Tab has selected
        self.tab_to("Save the schedule of retention")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("The job retention runs every week at 04:30 UTC", within=".messagelist")
        self.see("every week at 04:30 UTC", within="#retention .job-facts")
        self.narrow()
        self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), NARROW["width"])


class DocumentsTests(SimpleTestCase):
    def test_every_job_is_named_with_its_times_and_what_it_is_run_over_and_no_other(self) -> None:
        text = (ROOT / "docs/reference/jobs.md").read_text()
        documented = re.findall(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
        defined = {
            (job.slug, job.every.value, job.over.value, f"{job.does[0].lower()}{job.does[1:]}".removesuffix("."))
            for job in defined_jobs()
        }
        self.assertEqual(set(documented), defined)
