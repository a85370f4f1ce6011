from __future__ import annotations

from typing import Any

from django_q.models import OrmQ

from memoryhub.core.jobs import defined_jobs, find_job
from memoryhub.core.stores.store import project_store
from memoryhub.models import JobRun
from memoryhub.ops.jobs import locks, run_job
from memoryhub.ops.jobs.targets import Target
from memoryhub.web.signin import ensure_owner
from tests.support import HubTestCase


class JobsPageTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        for project in ("alpha", "beta"):
            with self.store(project):
                pass
        self.client.force_login(ensure_owner())

    def page(self) -> str:
        answer = self.client.get("/jobs")
        self.assertEqual(answer.status_code, 200)
        return answer.content.decode()

    def ask(self, **form: str) -> str:
        answer = self.client.post("/jobs/run", form, follow=True)
        self.assertEqual(answer.status_code, 200)
        return answer.content.decode()

    def test_every_job_is_there_with_what_it_does(self) -> None:
        page = self.page()
        for job in defined_jobs():
            self.assertInHTML(f'<p class="job-does">{job.does.replace(chr(39), "&#x27;")}</p>', page)

    def test_how_a_job_ended_is_shown_and_how_far_one_is_that_runs(self) -> None:
        run_job(job=find_job("verify stores"), asked_by="ada")
        JobRun.objects.filter(store="store:project:beta").update(result="failed", message="the chain <broke>")
        page = self.page()
        self.assertIn("Project beta: the chain &lt;broke&gt;", page)
        with locks.hold(find_job("rebuild"), Target(project_store("alpha")), asked_by="ada") as held:
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
        self.assertIn("Backup of project alpha is queued", self.ask(job="backup", store="store:project:alpha"))
        self.assertIn("already", self.ask(job="backup", store="store:project:alpha"))
        (task,) = OrmQ.objects.all()
        asked: dict[str, Any] = task.task
        self.assertEqual(asked["kwargs"]["aliases"], ["store:project:alpha"])
        self.assertEqual(asked["kwargs"]["asked_by"], ensure_owner().username)
        self.assertIn("There is no job", self.ask(job="nonsense"))
        self.assertIn("does not run over that store", self.ask(job="backup", store="store:project:gamma"))

    def test_who_is_not_signed_in_is_told_how_and_nothing_is_queued(self) -> None:
        self.a_worker_lives()
        self.client.logout()
        self.assertEqual(self.client.get("/jobs").status_code, 302)
        self.ask(job="backup")
        self.assertFalse(OrmQ.objects.exists())
        self.assertEqual(self.client.get("/jobs/run").status_code, 405)

    def a_worker_lives(self) -> None:
        self.addCleanup(locks.announce_worker().close)
